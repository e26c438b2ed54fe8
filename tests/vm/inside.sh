#!/bin/sh
# Runs as root in a virtual machine with pure cgroup v2 (tests/vm/run).  Prints `ok`, `FAIL` lines and counts.
# The machine's root is an overlay, so the engine keeps sessions in a file system of its own.
B=$1 pass=0 fail=0
for m in loop quota_v2; do
	[ ! -x /run/vmrun/modprobe ] || /run/vmrun/modprobe $m
done
S=/tmp/state
mkdir -p $S
ulimit -n 20000
export GARRET_RUN_DIR=$S
cp "$B/garret" "$B/garret-engine" /tmp/ # not over the shared folder, which is slow
G=/tmp/garret

check() { # NAME, 0 or not
	if [ "$2" = 0 ]; then pass=$((pass + 1)); echo "ok   $1"; else fail=$((fail + 1)); echo "FAIL $1"; fi
}

grep -q '^0::' /proc/self/cgroup && [ "$(wc -l </proc/self/cgroup)" = 1 ]
check "the machine has cgroup v2 alone" $?
$G doctor >/tmp/doctor 2>&1
grep -Eq '^ok +cgroup +v2' /tmp/doctor && grep -Eq '^ok +limit memory' /tmp/doctor
check "doctor sees it" $?

out=$($G run -- sh -c 'id -u; echo hi; exit 3')
[ $? = 3 ] && [ "$out" = "1000
hi" ]
check "a command runs" $?

hog='x = bytearray(1 << 28)
for i in range(0, len(x), 4096): x[i] = 1'
$G run --mem 64m -- python3 -c "$hog" 2>/tmp/err
[ $? = 137 ] && grep -q "out of memory" /tmp/err
check "the memory limit bites" $?
$G run --mem 512m -- python3 -c "$hog"
check "and leaves room below it" $?

$G run --pids 16 -- sh -c 'for i in $(seq 40); do sleep 5 & done; wait' 2>/tmp/err
grep -qi fork /tmp/err
check "the pids limit bites" $?

work='i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; read _ _ _ _ _ _ _ _ _ _ _ _ _ u s _ </proc/self/stat; echo $((u + s))'
t0=$(date +%s%3N); cpu=$($G run --cpus 0.25 -- sh -c "$work"); t1=$(date +%s%3N)
echo "     $cpu ticks of CPU in $((t1 - t0)) ms of wall at 0.25 CPU"
[ -n "$cpu" ] && [ $((t1 - t0)) -ge $((cpu * 10 * 2)) ]
check "the CPU limit bites" $?

t0=$(date +%s)
$G run --timeout 3 -- sh -c "trap '' TERM; sleep 1000 & sleep 1000" 2>/dev/null
[ $? = 124 ] && [ $(($(date +%s) - t0)) -lt 60 ] && ! pgrep -f 'sleep 1000' >/dev/null
check "a time-out kills what ignores TERM, and its children" $?
$G run --timeout 2 -- sh -c 'kill -STOP $$' 2>/dev/null
[ $? = 124 ]
check "and what is stopped" $?

# Rows of the table of attacks: namespaces, mounts, pid 1, devices, /proc, kernel surface, cgroup files.
rows="2 3 4 6 8 11 13 16 17 20 21 25 27 32 40 43 48 49 64 72 74 79"
cp "$B/tests/engine/attack" /tmp/attack-bin
# A directory from outside must lie where it can be mounted with other ids.
truncate -s 32M /tmp/attack.img && mkfs.ext4 -q /tmp/attack.img && mkdir -p /tmp/attack && mount -o loop /tmp/attack.img /tmp/attack
cp /tmp/attack-bin /tmp/attack/attack
# shellcheck disable=SC2086
$G run -v /tmp/attack:/attack:ro -- /attack/attack $rows >/tmp/rows 2>&1
for r in $rows; do
	grep -Eq "^ *$r +HELD" /tmp/rows
	check "attack $r: $(sed -n "s/^ *$r  *//p" /tmp/rows | head -n 1)" $?
done

# Limits of disk by project quotas, which not every kernel has.
GARRET_ENGINE=/tmp/garret-engine python3 -B tests/engine/test_engine.py -v DiskQuota DiskQuotaByDefault >/tmp/quota 2>&1
[ $? = 0 ] && grep -q '^OK$' /tmp/quota
check "limits of disk by project quotas: $(sed -n 's/^Ran \([0-9]* tests\).*/\1/p' /tmp/quota)" $?
grep -q '^OK$' /tmp/quota || tail -n 30 /tmp/quota

[ -z "$(ls $S/run 2>/dev/null)" ] && ! pgrep garret-engine >/dev/null && ! find /sys/fs/cgroup -type d -path '*garret*' -mindepth 3 | grep -q .
check "nothing is left" $?
echo "$pass passed, $fail failed"
[ $fail = 0 ]
