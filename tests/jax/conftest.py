"""Two devices on the CPU platform, for shard_map; set before anything imports JAX."""

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
