{{/*
What the schema cannot say, or says in words that help nobody. The first thing that is wrong
stops the install with a sentence. Profiles and images follow `read_profiles` of the
`spectrum_spawner` package, which has the last word when the hub starts.
*/}}
{{- define "spectrum.validate" -}}
{{- include "spectrum.validate.names" . }}
{{- include "spectrum.validate.auth" . }}
{{- include "spectrum.validate.profiles" . }}
{{- end }}

{{- define "spectrum.validate.names" -}}
{{- $prefix := include "spectrum.teamNamespacePrefix" . }}
{{- if or (gt (len $prefix) 40) (not (regexMatch "^[a-z0-9][-a-z0-9]*$" $prefix)) }}
{{- fail (printf "teamNamespacePrefix: %q must be at most 40 of a-z, 0-9 and -, and not start with -, since names of namespaces start with it" $prefix) }}
{{- end }}
{{- range $team, $_ := include "spectrum.table" .Values.teams | fromJson }}
{{- if or (gt (len $team) 63) (not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" $team)) }}
{{- fail (printf "teams: %q cannot name a team: use at most 63 of a-z, 0-9 and - and put the name that people read into displayName" $team) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "spectrum.validate.auth" -}}
{{- $auth := .Values.auth }}
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
