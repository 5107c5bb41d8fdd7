# Sourced by the scripts of tests/ that check one statement after another; they end with "$passed passed, $failed
# failed".
passed=0 failed=0
# check "what holds" "what breaks it, one per line"
check() {
  if [ -z "$2" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAILED: %s\n%s\n' "$1" "$(printf '%s\n' "$2" | sed 's/^/  /')"
  fi
}
