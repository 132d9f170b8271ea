"""Power loss: what reaches the disk is recorded, and whatever may be left of it is rebuilt and read.

`disk` records, `states` rebuilds, `scenes` says what happens before the power fails, and `judge` reads what is left.
Nothing here asks SQLite for its settings: a store that syncs too little is found by what it loses.
"""
