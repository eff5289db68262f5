"""When servers that nobody uses are stopped, and how people are told before.

`rules` are the records that `policy_values` reads; `policy` judges one server by one of them and
its evidence. `standing` remembers what a server's people were told and says what comes next,
`sweep` does so for all servers. These are pure. `metrics` says what is measured, `prometheus`
asks for it, `report` reads what servers tell of themselves, and `pods` knows which run. What a
look found is a `round`, what GPUs did in the hour before it the `history`.
"""
