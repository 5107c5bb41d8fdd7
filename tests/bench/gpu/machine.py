"""Runs bench_gpu on chips: a process for each module and chip, with a time limit, on this machine or in the Debian 13
root."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import chips

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
ICDS = pathlib.Path("/usr/share/vulkan/icd.d")


class Machine:
    """Where the programs of a leg run: this machine, or a root of its own in whose folder /t/NAME the files lie."""

    def __init__(self, build, debian13=None):
        self.debian13 = pathlib.Path(debian13).resolve() if debian13 else None
        if self.debian13:
            (self.debian13 / "t").mkdir(exist_ok=True)
            (self.debian13 / "run" / "user").mkdir(parents=True, exist_ok=True)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpu-", dir=self.debian13 / "t" if self.debian13 else None))
        shutil.copy(build / "tests" / "bench_gpu", self.folder)
        shutil.copytree(ROOT / "shaders", self.folder / "shaders")

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def put(self, path, name):
        shutil.copy(path, self.folder / name)
        return name

    def run(self, command, environment=None, limit=60):
        """(status, output) of a command in the folder; the status is None if it took longer than `limit` seconds."""
        variables = {k: v for k, v in (environment or {}).items()}
        if self.debian13:
            command = [
                "chroot",
                str(self.debian13),
                "env",
                "-C",
                "/" + str(self.folder.relative_to(self.debian13)),
                "XDG_RUNTIME_DIR=/run/user",
                *(f"{k}={v}" for k, v in variables.items()),
                "timeout",
                "-k",
                "1",
                str(limit),
                *command,
            ]
            variables = {}
        else:
            variables["XDG_RUNTIME_DIR"] = str(self.folder)
            command = ["timeout", "-k", "1", str(limit), *command]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return (None if done.returncode in (124, 137) else done.returncode), done.stdout.decode(errors="replace")

    def icd(self, driver):
        folder = self.debian13 / ICDS.relative_to("/") if self.debian13 else ICDS
        found = [f for f in sorted(folder.glob(f"{driver}_icd*.json")) if "i686" not in f.name]
        return str(ICDS / found[0].name) if found else None

    def glslang(self):
        return (
            next((g for g in ("glslangValidator", "glslang") if (self.debian13 / "usr/bin" / g).exists()), None)
            if self.debian13
            else shutil.which("glslangValidator") or shutil.which("glslang")
        )

    def compile(self, shader, defines, out):
        """SPIR-V of a hand-written shader; "" or what was wrong."""
        for version in ("vulkan1.2", "vulkan1.3"):  # as the benchmark's own; what 1.2 cannot say, in 1.3
            status, text = self.run(
                [self.glslang(), "-V", "--target-env", version, "--quiet", *defines, "-o", out, shader]
            )
            if status == 0:
                return ""
        return " ".join(line.strip() for line in text.split("\n") if "ERROR" in line)[:300] or text.strip()[:300]

    def ask(self, chip, module, subgroup=0, limit=60, options=()):
        """What bench_gpu says of a module (as named in the folder) on a chip; {"error": ...} if it says nothing."""
        icd = self.icd(chip.driver)
        if icd is None:
            return {"error": f"there is no driver {chip.driver}"}
        out = f"{module}.{chip.name}.{subgroup}.json"
        start = time.monotonic()
        status, text = self.run(
            ["./bench_gpu", "--out", out, "--subgroup", str(subgroup), *options, module],
            chips.environment(chip, icd),
            limit,
        )
        seconds = time.monotonic() - start
        if status is None:
            return {"error": f"stopped after {limit} s", "seconds": seconds}
        if not (self.folder / out).exists():  # it crashed
            what = (
                f"signal {-status}"
                if status < 0
                else f"signal {status - 128}" if status > 128 else f"exit status {status}"
            )
            lines = [
                line
                for line in text.split("\n")
                if line.strip() and "WARNING" not in line and "Unknown DRM" not in line
            ]
            return {
                "error": f"{what}: {lines[-1].strip() if lines and chip.driver != 'asahi' else ''}"[:300],
                "seconds": seconds,
            }
        answer = json.loads((self.folder / out).read_text())
        (self.folder / out).unlink()
        answer["seconds"] = seconds
        if "refused" in answer:
            answer["error"] = "refused: " + answer["refused"].split("\n")[0]
        if chip.driver == "asahi":
            answer["texts"] = {"AGX": text}
        return answer
