"""A real Slurm of simulated nodes on one machine: munge, slurmctld and one slurmd per node.

    layout, config   pure: paths and names, the text of Slurm's files
    host, lock       what this machine offers; one command at a time on a directory
    mounts, init     inside: what a node sees, and its PID 1
    files            the sandbox's files and cgroups: made, removed
    enter, lifecycle outside: the way into a node; up, down, status
    faults           what may go wrong with a node, on purpose
    sacct            the stand-in for sacct(1)

This package imports nothing by itself: the inits of the nodes live in it and start many at a time.
"""
