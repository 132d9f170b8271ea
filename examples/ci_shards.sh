#!/bin/sh
# A pipeline whose jobs share the shards of a test run: whoever is free takes the next one, and a shard whose runner
# dies is run again by another. The jobs here are processes; on several machines HOLDFAST_URL names a server.
#
# Shows: one job plans and the others wait for it, claims instead of a fixed split, `run --next` as a worker, a result
# for each shard, and one job that sums up when all are done, whichever comes last.
#
#     examples/ci_shards.sh
set -eu
project=$(mktemp -d)
trap 'rm -rf "$project"' EXIT
cd "$project"
export HOLDFAST_ROLLING=0
holdfast init -q >/dev/null

# Every job of the matrix runs this; `cell init` lets only the first of them plan.
job() {
    if holdfast cell init pipeline planned '"yes"' --actor "$1" >/dev/null 2>&1; then
        for shard in 1 2 3 4 5 6; do
            holdfast create "shard $shard" --tag shard --actor "$1" -q >/dev/null
        done
        holdfast cell set pipeline ready true --actor "$1" >/dev/null
    fi
    holdfast watch --for cell.pipeline/ready --after 0 --once --timeout 60s --actor "$1" >/dev/null
    # The work: a test runner that is told its shard. A failure would give the shard back.
    holdfast run --next --loop --tag shard --actor "$1" -- sh -c '
        holdfast cell set results "$HOLDFAST_TASK_TITLE" "\"passed\"" >/dev/null' >/dev/null
    if [ "$(holdfast list --status closed --tag shard -q | wc -l)" -eq 6 ] &&
        holdfast cell init pipeline reported "\"$1\"" --actor "$1" >/dev/null 2>&1; then
        echo "6 of 6 shards passed"
    fi
}

job job-1 & job job-2 & job job-3 &
wait
holdfast list --status closed --tag shard -q | wc -l | xargs echo "shards done:"
