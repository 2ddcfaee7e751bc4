# SPDX-License-Identifier: BSD-3-Clause
# A private Slurm of two nodes on this machine, in the folder $work, with sockets and ports of its own.
# It needs root, munged, slurmctld and slurmd, of a build that allows several slurmds on a machine.

slurm_lacks() # why there can be none, or nothing
{
    local command
    [ "$(id -u)" = 0 ] || echo "takes root"
    for command in munged slurmctld slurmd srun sbatch salloc scancel sinfo squeue; do
        PATH=$PATH:/usr/sbin command -v "$command" >/dev/null || echo "there is no $command"
    done
}

free_ports() # NUMBER
{
    "$PYTHON" -c '
import socket, sys
sockets = [socket.socket() for _ in range(int(sys.argv[1]))]
for one in sockets:
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in sockets))' "$1"
}

configure_slurm()
{
    local host ports node
    host=$(hostname -s) || return 1
    read -ra ports <<<"$(free_ports 3)"
    [ "${#ports[@]}" = 3 ] || return 1
    mkdir -m 755 "$work/munge" "$work/state" "$work/node1" "$work/node2" &&
        mkdir "$work/node1/tmp" "$work/node2/tmp" || return 1
    (umask 077 && head -c 128 /dev/urandom >"$work/munge/key")
    # Parts of Slurm for hosts of its own, as cgroups and accounting, stay out of it.
    cat >"$work/slurm.conf" <<END
ClusterName=fabrail
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$work/munge/socket
StateSaveLocation=$work/state
SlurmctldPidFile=$work/slurmctld.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdPidFile=$work/%n/slurmd.pid
SlurmdLogFile=$work/%n/slurmd.log
SlurmdSpoolDir=$work/%n
TmpFS=$work/%n/tmp
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
GresTypes=gpu
NodeName=node1 NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[1]} CPUs=16 Gres=gpu:8
NodeName=node2 NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[2]} CPUs=16 Gres=gpu:8
PartitionName=all Nodes=node1,node2 Default=YES State=UP
END
    touch "$work"/gpu{0..7}
    echo "NodeName=node[1-2] Name=gpu File=$work/gpu[0-7]" >"$work/gres.conf"
    case $(PATH=$PATH:/usr/sbin slurmd -V) in # what older releases neither know nor need
    *' '2[012].*) ;;
    *) echo 'CgroupPlugin=disabled' >"$work/cgroup.conf" ;;
    esac
    echo "PlugStackConfig=$work/plugstack.conf" >>"$work/slurm.conf"
    plugin=$(cd "$top_builddir" && pwd)/contrib/slurm/.libs/spank_fabrail.so
    [ -e "$plugin" ] || plugin=
    echo "${plugin:+optional $plugin library=$(cd "$top_builddir" && pwd)/.libs/libfabrail.so}" >"$work/plugstack.conf"
    export SLURM_CONF=$work/slurm.conf
}

start_daemon() # NAME COMMAND...
{
    local name=$1
    shift
    PATH=$PATH:/usr/sbin "$@" >"$work/$name.out" 2>&1 </dev/null &
    daemons+=($!)
}

all_run()
{
    local daemon
    for daemon in "${daemons[@]}"; do
        kill -0 "$daemon" 2>/dev/null || return 1
    done
}

# The last thing that one of them said is why there is no cluster.
start_slurm()
{
    local nodes=0
    daemons=()
    configure_slurm || return 1
    start_daemon munged munged --foreground --socket="$work/munge/socket" --key-file="$work/munge/key" \
        --pid-file="$work/munge/pid" --seed-file="$work/munge/seed" --log-file="$work/munge/log" \
        --num-threads=2
    for i in $(seq 100); do
        [ ! -S "$work/munge/socket" ] || break
        sleep 0.1
    done
    start_daemon slurmctld slurmctld -D -c
    start_daemon slurmd1 slurmd -D -N node1
    start_daemon slurmd2 slurmd -D -N node2
    for i in $(seq 100); do
        nodes=$(timeout 5 sinfo -h -N -t idle 2>/dev/null | wc -l)
        [ "$nodes" != 2 ] || return 0
        all_run || return 1
        sleep 0.2
    done
    return 1
}

# All that has this cluster's file in its environment: daemons, those that they start, and tasks.
of_slurm()
{
    local process
    for process in /proc/[0-9]*; do
        if [ "${process#/proc/}" != $$ ] &&
            tr '\0' '\n' 2>/dev/null <"$process/environ" | grep -qxF "SLURM_CONF=$work/slurm.conf"; then
            echo "${process#/proc/}"
        fi
    done 2>/dev/null
}

stop_slurm()
{
    local i
    [ "${#daemons[@]}" -gt 0 ] || return 0
    timeout 5 scancel --quiet --signal=KILL --full --user=root 2>/dev/null
    kill "${daemons[@]}" 2>/dev/null
    for i in $(seq 30); do
        kill -0 "${daemons[@]}" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "${daemons[@]}" $(of_slurm) 2>/dev/null
    wait "${daemons[@]}" 2>/dev/null
    daemons=()
}
