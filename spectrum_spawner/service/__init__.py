"""The Spectrum service: `python -m spectrum_spawner.service`.

A JupyterHub service with the pages and the API for teams: their servers, quotas and settings,
requests for more, and the audit ledger. People sign in through the hub. It stops servers only
by the hub's REST API and changes nothing in the cluster but `Team` objects.

`settings` says what it was told. Records are `servers`, `team_sheet`, `asking` and `reports`; who
may do what is `rights` alone, who left a team `leaving`, what is shown of it all `presentation`:
these are pure. `hub` and `snapshot` read servers, `ledger` keeps records and requests in `tables`.
What people do is `stops`, `preferences` and `requests` with `approvals`, what they see `board`:
each for pages and API alike. `volumes` keeps what servers report, `departures` is what the service
does by itself. HTTP comes in by `pages` and `audit_pages` in their `frame`, `api` and `ingest`;
`app` puts everything together.
"""
