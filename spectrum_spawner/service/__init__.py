"""The Spectrum service: `python -m spectrum_spawner.service`.

A JupyterHub service with the pages and the API for teams: their servers, GPUs, quotas and settings,
requests for more, and the audit ledger. People sign in through the hub. It stops servers only
by the hub's REST API and changes nothing in the cluster but `Team` objects.

`settings` says what it was told. Records are `servers`, `team_sheet`, `asking` and `reports`; who
may do what is `rights` alone, who left a team `leaving`, what is shown of it all `presentation`:
these are pure. `hub` and `snapshot` read servers, `ledger` keeps records and requests in `tables`.
What people do is `stops`, `preferences` and `requests` with `approvals`, what they see `board`:
each for pages and API alike. Of GPUs people see `gpus` with `gpu_rows` and `stock`, keep and
release servers by `keeping`, and try policies by `dry_runs`; their pages are `gpu_pages`. `volumes`
keeps what servers report. What the service does by itself is `departures`, and the `culler` by the
rules of `culling`: `evidence` is what it knows of servers, `standings` what people were told of
theirs. HTTP comes in by `pages` and `audit_pages` in their `frame`, `api` and `ingest`; `app` puts
everything together.
"""
