# Runs each command it is given, whatever became of those before it; then says which failed, and how long each took.
said=""
status=0
for command in "$@"; do
    began=$(date +%s)
    if $command; then result=passed; else result=FAILED; status=1; fi
    said="$said
  $result  $(($(date +%s) - began)) s  $command"
done
echo "Lanes:$said" >&2
exit $status
