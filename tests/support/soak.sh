# tests/run --soak HOURS: every generator on every judge with seeds that were never tried, until the time is over.
# Sourced by tests/run with `root`, `build`, `jobs`. build/soak keeps all there is: next seeds and counts (counts.tsv),
# what failed, shrunk (fuzz_SEED.tir, *.log). A later call goes on where this one ended.

# Generator and judges, and the command; %seed is where a turn begins. A turn is about two minutes. Those of JAX and of
# the second driver take what tests/jax.sh and tests/vendors/run have made in the build folder, and are left out where
# that is not there.
soak_venv=$build/jax/venv-0.10.2
fuzz="\"$build/tests/fuzz\" --shrink 40 --out %out --seed %seed"
soak_turns=(
  "random kernels: passes, lane interpreter, judge|$fuzz --targets 1 --seconds 120"
  "random kernels: Vulkan|$fuzz --device vulkan --target none --no-passes --seconds 120"
  "random kernels: Vulkan as a GPU|$fuzz --device gpu --target none --no-passes --seconds 120"
  "random kernels: Vulkan's minimum|$fuzz --device minimum --target none --no-passes --seconds 120"
  "random kernels: matrices|$fuzz --target matrix --seconds 120"
  "random kernels: PTX|$fuzz --target nvidia --seconds 120"
  "random kernels: loops cut into dispatches|$fuzz --target cut --seconds 120"
  "kernels of tests/tir, rewritten|$fuzz --rewrite any --codegen fast --orders 1 --no-passes tests/tir/*.tir"
  "random kernels, rewritten|$fuzz --rewrite any --no-passes --seconds 120"
  "kernels of tests/tir, rewritten: Vulkan|$fuzz --rewrite any --codegen fast --device vulkan --target none \
    --no-passes tests/tir/*.tir"
  "mutants of kernels' texts: the parser|\"$build/tests/parser\" --seed %seed --count 20000"
)
[ ! -f "$soak_venv/complete" ] || soak_turns+=("random Pallas kernels: JAX, interpreter, Vulkan|JAX_PLATFORMS=cpu \
  \"$soak_venv/bin/python\" tests/jax/random_kernels.py --seed %seed --count 1000000 --seconds 120")
[ ! -f "${TESSERA_DEBIAN13:-$build/debian13}/made" ] || soak_turns+=("random kernels: a second Vulkan driver|\
tests/vendors/run --no-install --only random --seed %seed --count 150")

# soak_turn N: one turn of the Nth of these; its counts are added under a lock.
soak_turn() {
  local name=${soak_turns[$1]%%|*} command=${soak_turns[$1]#*|} folder=$build/soak seed cases=0 passed=0 failed=1
  local log begin
  exec 9> "$folder/lock"
  flock 9
  # A turn owns a million seeds at once, so that turns side by side share none.
  seed=$(awk -F'\t' -v n="$name" '$1 == n { s = $2 } END { print s ? s : 10000000 }' "$folder/counts.tsv")
  awk -F'\t' -v OFS='\t' -v n="$name" -v s="$seed" \
    '$1 == n { $2 = s + 1000000; seen = 1 } { print } END { if (!seen) print n, s + 1000000, 0, 0, 0 }' \
    "$folder/counts.tsv" > "$folder/next"
  mv "$folder/next" "$folder/counts.tsv"
  flock -u 9
  command=${command//%seed/$seed}
  command=${command//%out/$folder}
  log=$folder/seed_$seed.$1.log begin=$SECONDS
  (cd "$root" && timeout 1200 bash -c "$command" || { [ $? -ne 124 ] || echo "stopped after 1200 s"; }) > "$log" 2>&1
  read -r passed failed <<< "$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$log" | tail -n 1)"
  if [ -z "${failed:-}" ]; then passed=0 failed=1; fi
  cases=$((passed + failed))
  flock 9
  awk -F'\t' -v OFS='\t' -v n="$name" -v c="$cases" -v f="$failed" -v t="$((SECONDS - begin))" \
    '$1 == n { $3 += c; $4 += f; $5 += t } { print }' "$folder/counts.tsv" > "$folder/next"
  mv "$folder/next" "$folder/counts.tsv"
  flock -u 9
  if [ "$failed" -eq 0 ]; then rm -f "$log"
  else printf 'FAILED %s: %d of %d cases; %s\n' "$name" "$failed" "$cases" "$log"; fi
}

# soak HOURS: turns until the time is over; then the table.
soak() {
  local folder=$build/soak end turn=0
  end=$(awk -v now="$(date +%s)" -v hours="$1" 'BEGIN { printf "%d", now + 3600 * hours }')
  mkdir -p "$folder"
  touch "$folder/counts.tsv"
  turn=$(wc -l < "$folder/counts.tsv")
  say "until $(date -d "@$end" '+%F %T'), $jobs turns at once; what fails lies in ${folder#"$root"/}"
  while [ "$(date +%s)" -lt "$end" ]; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    soak_turn "$((turn % ${#soak_turns[@]}))" &
    turn=$((turn + 1))
    sleep 1
  done
  wait
  printf '%-45s %12s %8s %8s\n' "generator: judge" cases failed hours
  awk -F'\t' '{ printf "%-45s %12d %8d %8.2f\n", $1, $3, $4, $5 / 3600; p += $3 - $4; f += $4 }
    END { printf "%d passed, %d failed\n", p, f; exit f > 0 }' "$folder/counts.tsv"
}
