{{/*
Rules by which servers end, and what they are measured by. It follows `read_policy` and
`read_metrics` of the `spectrum_spawner` package, in their words; they have the last one when the
service starts.
*/}}
{{- define "spectrum.validate.culling" -}}
{{- $rules := include "spectrum.table" .Values.culling.rules | fromJson }}
{{- $profiles := include "spectrum.table" .Values.profiles | fromJson }}
{{- $byOrder := dict }}
{{- range $name, $rule := $rules }}
{{- $place := printf "culling.rules.%s" $name }}
{{- include "spectrum.validate.rule" (dict "place" $place "rule" $rule "profiles" $profiles "least" $.Values.service.idleMinutes.min) }}
{{- $order := printf "%07d" (int $rule.order) }}
{{- with get $byOrder $order }}
{{- fail (printf "%s.order: rule %s has %d too" $place . (int $rule.order)) }}
{{- end }}
{{- $_ := set $byOrder $order $name }}
{{- end }}
{{- $before := list }}
{{- range $order := keys $byOrder | sortAlpha }}
{{- $name := get $byOrder $order }}
{{- $rule := get $rules $name }}
{{- range $before }}
{{- if include "spectrum.rule.covers" (dict "before" (get $rules .) "after" $rule) }}
{{- fail (printf "culling.rules.%s: never counts, since rule %s comes first and matches whatever it does" $name .) }}
{{- end }}
{{- end }}
{{- $before = append $before $name }}
{{- end }}
{{- include "spectrum.validate.tensorboardIdle" (dict "minutes" (int .Values.culling.tensorboardIdleMinutes) "rules" $rules "profiles" $profiles) }}
{{- range $name, $exemption := include "spectrum.table" .Values.culling.exemptions | fromJson }}
{{- $place := printf "culling.exemptions.%s" $name }}
{{- if not (or $exemption.users $exemption.teams $exemption.profiles) }}
{{- fail (printf "%s: name users, teams or profiles; it would exempt everybody" $place) }}
{{- end }}
{{- include "spectrum.validate.knownProfiles" (dict "place" $place "named" $exemption.profiles "profiles" $profiles) }}
{{- end }}
{{- end }}

{{/* Takes {minutes, rules, profiles}: the rule for TensorBoards comes before all others. */}}
{{- define "spectrum.validate.tensorboardIdle" -}}
{{- if .minutes }}
{{- if lt .minutes 15 }}
{{- fail "culling.tensorboardIdleMinutes: must be 0, for never, or 15 at least" }}
{{- end }}
{{- range $name, $rule := .rules }}
{{- $left := not $rule.profiles }}
{{- range $rule.profiles }}
{{- if ne (get $.profiles .).kind "tensorboard" }}{{ $left = true }}{{ end }}
{{- end }}
{{- if not $left }}
{{- fail (printf "culling.rules.%s: never counts, since culling.tensorboardIdleMinutes comes first; 0 takes that out" $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Takes {place, rule, profiles, least}: the least minutes of idle time that a team may set. */}}
{{- define "spectrum.validate.rule" -}}
{{- include "spectrum.validate.knownProfiles" (dict "place" .place "named" .rule.profiles "profiles" .profiles) }}
{{- /* What a rule means that does not say it; not by merge, for which 0 is nothing. */}}
{{- $rule := dict "idleMinutes" 60 "graceMinutes" 15 "minimumMinutes" 0 "lifetimeMinutes" 0 "warnMinutes" 10 }}
{{- range $key, $value := .rule }}{{ $_ := set $rule $key $value }}{{ end }}
{{- $windows := include "spectrum.table" (($rule.schedule).windows) | fromJson }}
{{- include "spectrum.validate.windows" (dict "place" (printf "%s.schedule.windows" .place) "windows" $windows) }}
{{- $idles := dict "idleMinutes" $rule.idleMinutes }}
{{- range $name, $window := $windows }}
{{- $_ := set $idles (printf "schedule.windows.%s.idleMinutes" $name) $window.idleMinutes }}
{{- end }}
{{- range $what, $idle := $idles }}
{{- if and (int $idle) (ge (int $rule.warnMinutes) (int $idle)) }}
{{- fail (printf "%s.%s: must be above warnMinutes" $.place $what) }}
{{- end }}
{{- end }}
{{- if and (int $rule.idleMinutes) (ge (int $rule.warnMinutes) (int .least)) }}
{{- fail (printf "%s.warnMinutes: must be below the %d minutes that a team may set" .place (int .least)) }}
{{- end }}
{{- if int $rule.lifetimeMinutes }}
{{- range $key := list "warnMinutes" "graceMinutes" "minimumMinutes" }}
{{- if ge (int (get $rule $key)) (int $rule.lifetimeMinutes) }}
{{- fail (printf "%s.lifetimeMinutes: must be above %s" $.place $key) }}
{{- end }}
{{- end }}
{{- if and (hasKey $rule "holdMinutes") (gt (int $rule.holdMinutes) (int $rule.lifetimeMinutes)) }}
{{- fail (printf "%s.holdMinutes: must not be above lifetimeMinutes" .place) }}
{{- end }}
{{- end }}
{{- $ends := false }}
{{- range $idles }}{{ if int . }}{{ $ends = true }}{{ end }}{{ end }}
{{- include "spectrum.validate.evidence" (dict "place" (printf "%s.evidence" .place) "rule" $rule "profiles" .profiles "ends" $ends) }}
{{- end }}

{{/* What must be idle has to tell a server that works. Takes {place, rule, profiles, ends}. */}}
{{- define "spectrum.validate.evidence" -}}
{{- $evidence := .rule.evidence | default list }}
{{- if and (has "power" $evidence) (not .rule.powerFloor) }}
{{- fail (printf "%s: power needs a powerFloor in watts" .place) }}
{{- end }}
{{- if and .rule.powerFloor (not (has "power" $evidence)) }}
{{- fail (printf "%s: powerFloor counts only with power among the evidence" .place) }}
{{- end }}
{{- if .ends }}
{{- if not $evidence }}
{{- fail (printf "%s: name what must be idle, of gpu, power, cpu, kernels, terminals, processes, hub" .place) }}
{{- end }}
{{- $matched := .rule.profiles | default (keys .profiles) }}
{{- /* Where no profile has a GPU, a rule for GPUs waits for the first one. */}}
{{- $hasGpu := and .rule.gpu (not .rule.profiles) }}
{{- range $matched }}{{ if int (get $.profiles .).gpu }}{{ $hasGpu = true }}{{ end }}{{ end }}
{{- $without := and (kindIs "bool" .rule.gpu) (not .rule.gpu) }}
{{- if or $without (not $hasGpu) }}
{{- if or (has "gpu" $evidence) (has "power" $evidence) }}
{{- fail (printf "%s: the servers of this rule have no GPU" .place) }}
{{- end }}
{{- else }}
{{- if not (has "gpu" $evidence) }}
{{- fail (printf "%s: servers of this rule have GPUs, so gpu must be among it" .place) }}
{{- end }}
{{- if not (or (has "cpu" $evidence) (has "processes" $evidence)) }}
{{- fail (printf "%s: a GPU that waits for data looks idle while a training goes on, so cpu or processes must be among it" .place) }}
{{- end }}
{{- if not (or (has "kernels" $evidence) (has "cpu" $evidence)) }}
{{- fail (printf "%s: a cell that runs would not count, so name kernels or cpu" .place) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Windows of the week that meet would leave open which counts. Takes {place, windows}. */}}
{{- define "spectrum.validate.windows" -}}
{{- $week := mul 7 1440 }}
{{- $spans := list }}
{{- range $name, $window := .windows }}
{{- $start := include "spectrum.minuteOfDay" $window.from | int }}
{{- $end := include "spectrum.minuteOfDay" $window.to | int }}
{{- if eq $start $end }}
{{- fail (printf "%s.%s: it ends when it begins; a whole day is 00:00 to 24:00" $.place $name) }}
{{- end }}
{{- $length := sub $end $start }}
{{- if lt $end $start }}{{ $length = add $length 1440 }}{{ end }}
{{- range $day, $called := list "mon" "tue" "wed" "thu" "fri" "sat" "sun" }}
{{- if or (not $window.days) (has $called $window.days) }}
{{- $spans = append $spans (dict "name" $name "start" (add (mul $day 1440) $start) "length" $length) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $one := $spans }}
{{- range $other := $spans }}
{{- $ahead := mod (add (sub $other.start $one.start) $week) $week }}
{{- if and (ne $one.name $other.name) (lt $ahead $one.length) }}
{{- fail (printf "%s: %s overlap" $.place (list $one.name $other.name | sortAlpha | join " and ")) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "spectrum.minuteOfDay" -}}
{{- $parts := splitList ":" . }}
{{- add (mul 60 (first $parts | atoi)) (last $parts | atoi) }}
{{- end }}

{{/* Not empty if nothing is left for the second rule. Takes {before, after}. */}}
{{- define "spectrum.rule.covers" -}}
{{- $covers := or (not (kindIs "bool" .before.gpu)) (and (kindIs "bool" .after.gpu) (eq .before.gpu .after.gpu)) }}
{{- range $key := list "profiles" "teams" }}
{{- $first := get $.before $key | default list }}
{{- $then := get $.after $key | default list }}
{{- if and $first (not $then) }}{{ $covers = false }}{{ end }}
{{- range $then }}
{{- if and $first (not (has . $first)) }}{{ $covers = false }}{{ end }}
{{- end }}
{{- end }}
{{- if $covers }}covers{{ end }}
{{- end }}

{{/* Takes {place, named, profiles}. */}}
{{- define "spectrum.validate.knownProfiles" -}}
{{- range .named }}
{{- if not (hasKey $.profiles .) }}
{{- fail (printf "%s.profiles: there is no profile '%s'" $.place .) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "spectrum.validate.metrics" -}}
{{- range $name, $metric := include "spectrum.table" (omit .Values.metrics "prometheusUrl" "scrapeSeconds") | fromJson }}
{{- if not (has $name (list "engine" "utilisation" "power" "cpu" "memory")) }}
{{- if not $metric.source }}{{ fail (printf "metrics.%s.source: must be one of gpu, power, cpu, memory" $name) }}{{ end }}
{{- if not $metric.name }}{{ fail (printf "metrics.%s.name: is missing" $name) }}{{ end }}
{{- end }}
{{- $usual := ternary "memory" "" (eq $name "memory") }}
{{- if ne (eq ($metric.source | default $usual) "memory") (not (empty ($metric.free | default $usual))) }}
{{- fail (printf "metrics.%s.free: must be there for source memory, and for no other" $name) }}
{{- end }}
{{- range $label, $_ := $metric.only }}
{{- if not (regexMatch "^[a-zA-Z_][a-zA-Z0-9_]*$" $label) }}
{{- fail (printf "metrics.%s: '%s' is no label's name" $name $label) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
