{{/*
What the schema cannot say, or says in words that help nobody. The first thing that is wrong
stops the install with a sentence. Profiles and images follow `read_profiles` of the
`spectrum_spawner` package, which has the last word when the hub starts.
*/}}
{{- define "spectrum.validate" -}}
{{- include "spectrum.validate.names" . }}
{{- include "spectrum.validate.auth" . }}
{{- include "spectrum.validate.service" . }}
{{- include "spectrum.validate.profiles" . }}
{{- include "spectrum.validate.teams" . }}
{{- include "spectrum.validate.storage" . }}
{{- include "spectrum.validate.culling" . }}
{{- include "spectrum.validate.metrics" . }}
{{- include "spectrum.validate.definition" . }}
{{- end }}

{{- define "spectrum.validate.names" -}}
{{- $prefix := include "spectrum.teamNamespacePrefix" . }}
{{- if or (gt (len $prefix) 40) (not (regexMatch "^[a-z0-9][-a-z0-9]*$" $prefix)) }}
{{- fail (printf "teamNamespacePrefix: %q must be at most 40 of a-z, 0-9 and -, and not start with -, since names of namespaces start with it" $prefix) }}
{{- end }}
{{- $ofKubernetes := hasPrefix "kube-" $prefix }}
{{- range list "default" "kube-system" "kube-public" "kube-node-lease" }}
{{- if hasPrefix $prefix . }}{{ $ofKubernetes = true }}{{ end }}
{{- end }}
{{- if $ofKubernetes }}
{{- fail (printf "teamNamespacePrefix: namespaces of Kubernetes itself, kube-... and default, could begin with %q; set one that is the teams' alone" $prefix) }}
{{- end }}
{{- range $team, $_ := include "spectrum.table" .Values.teams | fromJson }}
{{- if or (gt (len $team) 63) (not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" $team)) }}
{{- fail (printf "teams: %q cannot name a team: use at most 63 of a-z, 0-9 and - and put the name that people read into displayName" $team) }}
{{- end }}
{{- end }}
{{- range $template, $_ := include "spectrum.table" .Values.teamTemplates | fromJson }}
{{- if or (gt (len $template) 63) (not (regexMatch "^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$" $template)) }}
{{- fail (printf "teamTemplates: %q cannot name a template: use at most 63 letters, digits and -" $template) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "spectrum.validate.auth" -}}
{{- if eq .Values.auth.method "oauth" }}
{{- include "spectrum.validate.oauth" . }}
{{- else }}
{{- include "spectrum.validate.sharedPassword" . }}
{{- end }}
{{- end }}

{{- define "spectrum.validate.sharedPassword" -}}
{{- $auth := .Values.auth }}
{{- if or $auth.oauth.clientId $auth.oauth.clientSecret }}
{{- fail "auth.oauth: an identity provider is set up, but auth.method is shared-password; people sign in by one of the two, so set auth.method to oauth or take auth.oauth out" }}
{{- end }}
{{- if not $auth.acceptSharedPassword }}
{{- fail "auth.acceptSharedPassword: with method shared-password anybody who knows the password can sign in as anybody; set it to true if that is acceptable here" }}
{{- end }}
{{- $names := concat $auth.admins $auth.users }}
{{- range include "spectrum.table" $auth.groups | fromJson }}{{ $names = concat $names . }}{{ end }}
{{- range $names | uniq }}
{{- if not (regexMatch "^[^A-Z/\\s]+$" .) }}
{{- fail (printf "auth: %q cannot sign in: names are lower case, without spaces and slashes" .) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "spectrum.validate.oauth" -}}
{{- $oauth := .Values.auth.oauth }}
{{- if not $oauth.clientId }}
{{- fail "auth.oauth.clientId: is missing; it is the name under which the identity provider knows this hub" }}
{{- end }}
{{- if not (hasKey (include "spectrum.secretData" . | fromJson) "oauthClientSecret") }}
{{- fail "auth.oauth.clientSecret: is missing; set it, or put it as oauthClientSecret into the Secret hub of the release" }}
{{- end }}
{{- $callback := printf "%shub/oauth_callback" .Values.hub.baseUrl }}
{{- if not (hasSuffix $callback $oauth.callbackUrl) }}
{{- fail (printf "auth.oauth.callbackUrl: %q must be the address that people open with %s behind it" $oauth.callbackUrl $callback) }}
{{- end }}
{{- range $key := list "authorizeUrl" "tokenUrl" "userdataUrl" }}
{{- if and (eq $oauth.provider "generic") (not (get $oauth $key)) }}
{{- fail (printf "auth.oauth.%s: is missing; the provider's /.well-known/openid-configuration names it" $key) }}
{{- end }}
{{- if and (ne $oauth.provider "generic") (get $oauth $key) }}
{{- fail (printf "auth.oauth.%s: provider %s has its own; set provider to generic or take this out" $key $oauth.provider) }}
{{- end }}
{{- end }}
{{- if and (eq $oauth.provider "azuread") (not $oauth.extra.tenant_id) }}
{{- fail "auth.oauth.extra.tenant_id: is missing; provider azuread signs in the people of one tenant" }}
{{- end }}
{{- $allowing := list }}
{{- range $trait, $_ := $oauth.extra }}
{{- if hasPrefix "allowed_" $trait }}{{ $allowing = append $allowing $trait }}{{ end }}
{{- end }}
{{- if not (or $oauth.allowAll $oauth.allowedGroups $oauth.adminGroups $allowing) }}
{{- fail "auth.oauth: nobody could sign in; name allowedGroups, or set allowAll to true" }}
{{- end }}
{{- $tables := dict "users" .Values.auth.users "groups" (include "spectrum.table" .Values.auth.groups | fromJson) }}
{{- range $key, $table := $tables }}
{{- if $table }}
{{- fail (printf "auth.%s: with method oauth the identity provider says who there is and who is in which group; take it out" $key) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "spectrum.validate.service" -}}
{{- $minutes := .Values.service.idleMinutes }}
{{- if gt (int $minutes.min) (int $minutes.max) }}
{{- fail "service.idleMinutes: min is above max" }}
{{- end }}
{{- range .Values.service.scrapers }}
{{- if and (kindIs "map" .namespaceSelector) (not .namespaceSelector) (not .podSelector) }}
{{- fail "service.scrapers: a namespaceSelector that selects every namespace lets every server reach the service by the back; name that of Prometheus" }}
{{- end }}
{{- if and .ipBlock (gt (len .) 1) }}
{{- fail "service.scrapers: a peer with an ipBlock selects no pods; make two peers of it" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "spectrum.validate.profiles" -}}
{{- $images := include "spectrum.table" .Values.images | fromJson }}
{{- $profiles := include "spectrum.table" .Values.profiles | fromJson }}
{{- if not $profiles }}{{ fail "profiles: at least one profile is needed" }}{{ end }}
{{- $bySlug := dict }}
{{- $defaults := list }}
{{- range $name, $profile := $profiles }}
{{- with get $bySlug (lower $name) }}
{{- fail (printf "profiles: %s and %s have the same slug" . $name) }}
{{- end }}
{{- $_ := set $bySlug (lower $name) $name }}
{{- if $profile.default }}{{ $defaults = append $defaults $name }}{{ end }}
{{- range $image := $profile.images }}
{{- if not (hasKey $images $image) }}
{{- fail (printf "profiles.%s.images: there is no image %q under images" $name $image) }}
{{- end }}
{{- end }}
{{- include "spectrum.validate.sizes" (dict "place" (printf "profiles.%s" $name) "profile" $profile) }}
{{- end }}
{{- if gt (len $defaults) 1 }}
{{- fail (printf "profiles: only one may be the default, not %s" (join " and " $defaults)) }}
{{- end }}
{{- end }}

{{- define "spectrum.validate.sizes" -}}
{{- $cpu := .profile.cpu | default dict }}
{{- $memory := .profile.memory | default dict }}
{{- if and $cpu.guarantee $cpu.limit }}
{{- if gt (include "spectrum.millicores" $cpu.guarantee | float64) (include "spectrum.millicores" $cpu.limit | float64) }}
{{- fail (printf "%s.cpu: the guarantee is above the limit" .place) }}
{{- end }}
{{- end }}
{{- if and $memory.guarantee $memory.limit }}
{{- if gt (include "spectrum.bytes" $memory.guarantee | float64) (include "spectrum.bytes" $memory.limit | float64) }}
{{- fail (printf "%s.memory: the guarantee is above the limit" .place) }}
{{- end }}
{{- end }}
{{- if and .profile.sharedMemory $memory.limit }}
{{- if ge (include "spectrum.bytes" .profile.sharedMemory | float64) (include "spectrum.bytes" $memory.limit | float64) }}
{{- fail (printf "%s.sharedMemory: must be below memory.limit, since it counts as memory in use" .place) }}
{{- end }}
{{- end }}
{{- if and (contains "/mig-" (.profile.gpuResource | default "")) (gt (int .profile.gpu) 1) }}
{{- fail (printf "%s.gpu: a container sees one MIG slice only, so the count must be 1" .place) }}
{{- end }}
{{- end }}

{{/* Teams and templates against the profiles that they may use. */}}
{{- define "spectrum.validate.teams" -}}
{{- $profiles := include "spectrum.table" .Values.profiles | fromJson }}
{{- range $name, $team := include "spectrum.table" .Values.teams | fromJson }}
{{- $place := printf "teams.%s" $name }}
{{- include "spectrum.validate.team" (dict "place" $place "name" $name "team" $team "profiles" $profiles) }}
{{- range $id, $grant := $team.grants }}
{{- if not (or $grant.gpus $grant.profiles) }}
{{- fail (printf "%s.grants.%s: must give gpus or profiles" $place $id) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $template := include "spectrum.table" .Values.teamTemplates | fromJson }}
{{- $_ := mustRegexMatch $template.pattern "" }}
{{- $place := printf "teamTemplates.%s.spec" $name }}
{{- include "spectrum.validate.team" (dict "place" $place "name" "" "team" $template.spec "profiles" $profiles) }}
{{- end }}
{{- end }}

{{- define "spectrum.validate.team" -}}
{{- $team := .team | default dict }}
{{- $named := $team.profiles | default list }}
{{- range $named }}
{{- if not (hasKey $.profiles .) }}
{{- fail (printf "%s.profiles: there is no profile %q" $.place .) }}
{{- end }}
{{- end }}
{{- with $team.defaultProfile }}
{{- if not (hasKey $.profiles .) }}
{{- fail (printf "%s.defaultProfile: there is no profile %q" $.place .) }}
{{- end }}
{{- if and $named (not (has . $named)) }}
{{- fail (printf "%s.defaultProfile: %q is not among the team's profiles" $.place .) }}
{{- end }}
{{- end }}
{{- range $profile, $record := .profiles }}
{{- $open := or (not $named) (has $profile $named) }}
{{- if and $open (or (not $record.teams) (has $.name $record.teams)) }}
{{- range $what := list "cpu" "memory" }}
{{- $sizes := get $record $what | default dict }}
{{- if and (hasKey ($team.quota | default dict) $what) (not (or $sizes.guarantee $sizes.limit)) }}
{{- fail (printf "profiles.%s.%s: a guarantee is needed, since %s has a quota of it, which a server without one would get round" $profile $what $.place) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/*
Helm never upgrades a definition, and an API server drops what the one it has does not know: Helm
would not even notice, and not say it again at the next upgrade.
*/}}
{{- define "spectrum.validate.definition" -}}
{{- $found := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "teams.spectrum.dev" }}
{{- range ($found.spec).versions }}
{{- $spec := .schema.openAPIV3Schema.properties.spec }}
{{- range $name, $team := include "spectrum.table" $.Values.teams | fromJson }}
{{- include "spectrum.validate.known" (dict "place" (printf "teams.%s" $name) "value" $team "schema" $spec) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Stops at the first key that a definition has no place for. Takes {place, value, schema}. */}}
{{- define "spectrum.validate.known" -}}
{{- if kindIs "map" .value }}
{{- range $key, $value := .value }}
{{- $place := printf "%s.%s" $.place $key }}
{{- if $.schema.properties }}
{{- if not (hasKey $.schema.properties $key) }}
{{- fail (printf "%s: the Team definition that this cluster has is older than the chart and would drop it; upgrade without it first, after which the controller replaces the definition, or run kubectl replace -f on the chart's crds/teams.yaml" $place) }}
{{- end }}
{{- include "spectrum.validate.known" (dict "place" $place "value" $value "schema" (get $.schema.properties $key)) }}
{{- else if kindIs "map" $.schema.additionalProperties }}
{{- include "spectrum.validate.known" (dict "place" $place "value" $value "schema" $.schema.additionalProperties) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
