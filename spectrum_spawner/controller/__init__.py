"""The team controller: `python -m spectrum_spawner.controller`.

It turns each `Team` into a namespace with quota, limits, network policy and the hub's role, puts
back whatever is changed or deleted there, allocates the team's gid, reports in the Team's status,
and publishes how many GPUs the cluster has and how many are free. It is the only process of
Spectrum with rights on the whole cluster.

`settings` says what it was told, `objects` and `status` build manifests, `ownership` decides
whose a namespace is, `drift` whether an object is as it should be, `grants` what a team has for
a time and `changes` what somebody changed in a Team: all of them are pure. `cluster` is what it
sees. `reconcile` does one team: `filling` fills it from a template, `spaces` makes its namespace,
with `gids` for group ids and `children` for the objects in it, and `orphans` looks after
namespaces whose Team is gone. `work` says which team and when, `journal` tells the audit.
`capacity` (pure) counts GPUs and `publish` publishes them. `crd` keeps the Team definition
current; `handlers` is where kopf calls in.
"""
