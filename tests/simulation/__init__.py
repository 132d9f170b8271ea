"""The deterministic simulation: nodes, clients and faults in one thread of control, chosen by one seed.

`scheduler` runs one fibre at a time; `cluster` is the world the nodes live in (time, lines, disks); `workload` says
what clients can ask for, `load` who asks whom, `history` what they asked and heard; `truth` what the log says happened;
`replay` and `watching` judge the one by the other; `run` plays one seed, `campaign` many. A seed that fails can be
played again, byte for byte.
"""
