#!/usr/bin/env bash
# A throw-away Slurm on this one machine, which pretends to be four nodes n1 … n4 with four processors each. For tests; needs
# root and Debian's packages slurm-wlm slurmd slurmctld slurm-client munge.
#
#   bash tools/slurm_local.sh start FOLDER    # then: export SLURM_CONF=FOLDER/slurm.conf
#   bash tools/slurm_local.sh stop FOLDER
#
# It takes five ports from SLURM_LOCAL_PORT (16817) on.
set -euo pipefail

nodes=(n1 n2 n3 n4)
port="${SLURM_LOCAL_PORT:-16817}"
usage() { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -eq 2 ] || usage
action="$1"
mkdir -p "$2"
folder="$(cd "$2" && pwd)"

write_configuration() {
    local controller
    controller="$(hostname -s)"
    { cat /etc/hosts; echo "127.0.0.1 $controller ${nodes[*]}"; } > "$folder/hosts"
    head -c 128 /dev/urandom > "$folder/munge.key"
    chmod 600 "$folder/munge.key"
    mkdir -p "$folder/state"
    # MPICH names its shared memory after job and step, and a job that is killed leaves it behind: that of an earlier
    # cluster's job of the same number would be in the way.
    first_job="$(($(date +%s) % 60000000 + 1))"
    cat > "$folder/slurm.conf" <<CONF
ClusterName=local
SlurmctldHost=$controller(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket,cred_expire=5
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool.%n
TmpFS=$folder/tmp.%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.%n.log
SlurmctldPort=$port
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=pmi2
KillOnBadExit=1
KillWait=5
MinJobAge=3600
FirstJobId=$first_job
ReturnToService=2
JobRequeue=1
PropagateResourceLimits=NONE
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
NodeName=n[1-4] NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 4))] CPUs=4 RealMemory=4000
PartitionName=debug Nodes=n[1-4] Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
CONF
}

start() {
    write_configuration
    export SLURM_CONF="$folder/slurm.conf"
    munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" --pid-file="$folder/munged.pid" \
        --log-file="$folder/munged.log" --seed-file="$folder/munged.seed"
    slurmctld -c -f "$SLURM_CONF"
    for node in "${nodes[@]}"; do
        mkdir -p "$folder/spool.$node" "$folder/tmp.$node"
        # A host name of its own for each slurmd, which wants gethostname() to be its NodeName.
        unshare --uts --mount sh -c "mount --bind '$folder/hosts' /etc/hosts; hostname $node; \
            exec slurmd -N $node -f '$SLURM_CONF'"
    done
    for _ in $(seq 100); do
        [ "$(sinfo --noheader --format=%t --states=idle --Node 2>/dev/null | wc -l)" -eq "${#nodes[@]}" ] && return
        sleep 0.2
    done
    echo "Slurm did not come up; see the logs in $folder" >&2
    exit 1
}

stop() {
    for pid_file in "$folder"/slurmd.*.pid "$folder/slurmctld.pid" "$folder/munged.pid"; do
        [ -f "$pid_file" ] && kill "$(cat "$pid_file")" 2>/dev/null
    done
    true
}

case "$action" in
    start) start ;;
    stop) stop ;;
    *) usage ;;
esac
