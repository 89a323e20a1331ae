#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# slurm.sh PAGEFUSE: docs/deploy/batch.sbatch as an array of four jobs, of which one is queued again while it runs, gives the answers of one run. Starts munged,
# slurmctld and two slurmd of its own on loopback, as root; run in the top folder, by hand. Exit status 77 where that cannot be.
set -euo pipefail
pagefuse=$(realpath "$1")
model=$PWD/models/gemma3_recall
PATH=$PATH:/usr/sbin:/sbin
for tool in munged slurmctld slurmd sbatch python3; do
  command -v $tool >/dev/null || { echo "$tool is not installed"; exit 77; }
done
[ "$(id -u)" -eq 0 ] || { echo 'slurmctld and slurmd are run as root'; exit 77; }
out=$(mktemp -d)
chmod 755 "$out"
children=()
finish() {
  scancel -u root >/dev/null 2>&1 || true
  sleep 1
  for child in "${children[@]}"; do kill -TERM "$child" 2>/dev/null || true; done
  for child in "${children[@]}"; do wait "$child" 2>/dev/null || true; done
  rm -rf "$out"
}
trap finish EXIT

fail() {
  echo "$1" >&2
  tail -n 8 "$out"/*.log "$out"/slurm-*.out 2>/dev/null >&2 || true
  exit 1
}

# await WHAT TEST...
await() {
  for _ in $(seq 240); do
    ! "${@:2}" || return 0
    sleep 0.25
  done
  fail "not in a minute: $1"
}

look() { python3 -B tests/tools/batch_lines.py "$@" || fail "$*"; }

mkdir "$out/munge" "$out/state"
head -c 1024 /dev/urandom >"$out/munge/key"
chmod 600 "$out/munge/key"
munged --foreground --force --key-file="$out/munge/key" --socket="$out/munge/socket" --pid-file="$out/munge/pid" --seed-file="$out/munge/seed" \
  --log-file="$out/munged.log" 2>"$out/munged.errors.log" &
children+=($!)
await 'munged' test -S "$out/munge/socket"

host=$(hostname -s)
ports=($(python3 -c 'import socket
sockets = [socket.socket() for _ in range(3)]
for one in sockets: one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in sockets))'))
cat >"$out/slurm.conf" <<END
ClusterName=pagefuse
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports[0]}
CommunicationParameters=NoInAddrAny
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$out/munge/socket,cred_expire=5
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation=$out/state
SlurmctldPidFile=$out/slurmctld.pid
SlurmdSpoolDir=$out/spool.%n
SlurmdPidFile=$out/slurmd.%n.pid
SlurmctldLogFile=$out/slurmctld.log
SlurmdLogFile=$out/slurmd.%n.log
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[1]} CPUs=1
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[2]} CPUs=1
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=10 State=UP
END
export SLURM_CONF=$out/slurm.conf
slurmctld -D 2>"$out/slurmctld.errors.log" &
children+=($!)
for node in n1 n2; do
  mkdir "$out/spool.$node"
  slurmd -D -N $node 2>"$out/slurmd.$node.errors.log" &
  children+=($!)
done
idle() { [ "$(sinfo -h -N -o '%N %t' 2>/dev/null | grep -c ' idle')" -eq 2 ]; }
await 'two idle nodes' idle

python3 -B tests/tools/batch_lines.py make 200 64 >"$out/in"
"$pagefuse" batch "$model" "$out/in" -o "$out/whole" 2>"$out/whole.log" || fail 'one run'
job=$(PAGEFUSE=$pagefuse sbatch --parsable --chdir="$out" docs/deploy/batch.sbatch "$model" "$out/in" "$out/part")
# One of them is queued again when it has begun to answer.
await 'the first answer of a task' test -s "$out/part.0.jsonl"
scontrol requeue "${job}_0" || echo 'the first task had ended before it could be queued again'
over() { [ -z "$(squeue -h -j "$job" 2>/dev/null)" ]; }
await 'the end of the job' over
for task in 0 1 2 3; do
  [ "$(wc -l <"$out/part.$task.jsonl")" -eq 50 ] || fail "task $task: $(wc -l <"$out/part.$task.jsonl") lines of 50"
done
look same "$out/whole" "$out"/part.{0,1,2,3}.jsonl
nodes=$(cat "$out"/slurmctld.log | grep -oE 'NodeList=n[12]' | sort | uniq -c | tr -s ' \n' ' ')
echo "an array of 4 over two nodes ($nodes) gives the 200 answers of one run"
