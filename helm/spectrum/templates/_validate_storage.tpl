{{/*
Storage, of the release and of teams. It follows `read_storage` of the `spectrum_spawner` package,
which has the last word when the controller starts.
*/}}
{{- define "spectrum.validate.storage" -}}
{{- $storage := .Values.storage }}
{{- range $kind := list "home" "share" "scratch" }}
{{- include "spectrum.validate.volume" (dict "place" (printf "storage.%s" $kind) "volume" (get $storage $kind)) }}
{{- end }}
{{- include "spectrum.validate.bucket" $storage.bucket }}
{{- include "spectrum.validate.datasets" $storage.datasets }}
{{- include "spectrum.validate.growth" . }}
{{- include "spectrum.validate.gateway" . }}
{{- range $name, $team := include "spectrum.table" .Values.teams | fromJson }}
{{- include "spectrum.validate.teamStorage" (dict "place" (printf "teams.%s" $name) "team" $team "bucket" $storage.bucket) }}
{{- end }}
{{- range $name, $template := include "spectrum.table" .Values.teamTemplates | fromJson }}
{{- include "spectrum.validate.teamStorage" (dict "place" (printf "teamTemplates.%s.spec" $name) "team" $template.spec "bucket" $storage.bucket) }}
{{- end }}
{{- end }}

{{/* Takes {place, volume}. */}}
{{- define "spectrum.validate.volume" -}}
{{- if hasKey .volume "size" }}
{{- if not (regexMatch "^[1-9][0-9]{0,5}([.][0-9]{1,3})?(Mi|Gi|Ti)$" .volume.size) }}
{{- fail (printf "%s.size: %q is no size such as 512Mi or 10Gi" .place .volume.size) }}
{{- end }}
{{- end }}
{{- with .volume.storageClass }}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$" .) }}
{{- fail (printf "%s.storageClass: %q is no name of a StorageClass" $.place .) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "spectrum.validate.bucket" -}}
{{- include "spectrum.validate.volume" (dict "place" "storage.bucket" "volume" .) }}
{{- $host := "([-A-Za-z0-9._]+|\\[[0-9A-Fa-f:.]+\\])" }}
{{- $port := "(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?" }}
{{- if and .endpoint (not (regexMatch (printf "^https?://%s%s(/[^\\s?#]*)?$" $host $port) .endpoint)) }}
{{- fail (printf "storage.bucket.endpoint: %q is no http or https URL of a gateway" .endpoint) }}
{{- end }}
{{- if and .enabled (not .endpoint) }}
{{- fail "storage.bucket.endpoint: is missing; it is the S3 URL of the gateway, such as http://rook-ceph-rgw-my-store.rook-ceph.svc, and without one there are no buckets" }}
{{- end }}
{{- range .peers }}
{{- if and (kindIs "map" .namespaceSelector) (not .namespaceSelector) (not .podSelector) }}
{{- fail "storage.bucket.peers: a namespaceSelector that selects every namespace opens every team to every other; name the gateway's" }}
{{- end }}
{{- if and .ipBlock (gt (len .) 1) }}
{{- fail "storage.bucket.peers: a peer with an ipBlock selects no pods; make two peers of it" }}
{{- end }}
{{- with .ipBlock }}
{{- if not (regexMatch "^[0-9a-fA-F.:]+/[1-9][0-9]{0,2}$" .cidr) }}
{{- fail (printf "storage.bucket.peers: ipBlock.cidr: %q is no range of addresses such as 10.1.2.3/32" .cidr) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "spectrum.validate.datasets" -}}
{{- range $name, $dataset := include "spectrum.table" . | fromJson }}
{{- if or (gt (len $name) 63) (not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" $name)) }}
{{- fail (printf "storage.datasets: %q cannot name a dataset: use at most 63 of a-z, 0-9 and - and put what people read into title" $name) }}
{{- end }}
{{- $place := printf "storage.datasets.%s" $name }}
{{- include "spectrum.validate.volume" (dict "place" $place "volume" $dataset) }}
{{- if or (not (regexMatch "^(/[^/\\s]+)+$" $dataset.path)) (regexMatch "/[.][.]?(/|$)" $dataset.path) }}
{{- fail (printf "%s.path: %q is no path such as /volumes/datasets/imagenet; it holds no . or .. and ends in no slash" $place $dataset.path) }}
{{- end }}
{{- end }}
{{- end }}

{{/* What a team says of storage. Takes {place, team, bucket}, the bucket as the release has it. */}}
{{- define "spectrum.validate.teamStorage" -}}
{{- $team := .team | default dict }}
{{- range $kind, $volume := $team.storage }}
{{- $place := printf "%s.storage.%s" $.place $kind }}
{{- include "spectrum.validate.volume" (dict "place" $place "volume" $volume) }}
{{- if and (hasKey $volume "storageClass") (not $volume.storageClass) }}
{{- fail (printf "%s.storageClass: must name a StorageClass; leave it out for that of storage.%s" $place $kind) }}
{{- end }}
{{- end }}
{{- if and (($team.storage).bucket).enabled (not .bucket.endpoint) }}
{{- fail (printf "%s.storage.bucket.enabled: there are no buckets until storage.bucket.endpoint names a gateway" .place) }}
{{- end }}
{{- range $class, $amount := ($team.quota).storage }}
{{- $place := printf "%s.quota.storage.%s" $.place $class }}
{{- include "spectrum.validate.volume" (dict "place" $place "volume" (merge (dict "storageClass" $class) $amount)) }}
{{- end }}
{{- end }}

{{/*
Claims grow and never shrink, so neither do the sizes that they follow. What the running release
has is what its controller was told.
*/}}
{{- define "spectrum.validate.growth" -}}
{{- $running := lookup "apps/v1" "Deployment" .Release.Namespace "controller" }}
{{- range ((($running.spec).template).spec).containers }}
{{- range .env }}
{{- if eq .name "STORAGE" }}
{{- $before := .value | default "{}" | fromJson }}
{{- range $kind := list "home" "share" "scratch" }}
{{- $new := (get $.Values.storage $kind).size }}
{{- $volume := get $before $kind | default dict }}
{{- $old := $volume.size | default $new }}
{{- $isUsed := $volume.enabled | default (eq $kind "home") }}
{{- if and $isUsed (lt (include "spectrum.bytes" $new | float64) (include "spectrum.bytes" $old | float64)) }}
{{- fail (printf "storage.%s.size: %s is less than the %s that this release has, and volumes grow but never shrink; set %s or more" $kind $new $old $old) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Keys can be made void at the gateway alone, so that goes last. */}}
{{- define "spectrum.validate.gateway" -}}
{{- if and (not .Values.storage.bucket.endpoint) (.Capabilities.APIVersions.Has "spectrum.dev/v1alpha1") }}
{{- range (lookup "spectrum.dev/v1alpha1" "Team" .Release.Namespace "").items }}
{{- with ((.status).storage).bucket }}
{{- if .keysMade }}
{{- fail (printf "storage.bucket.endpoint: bucket %s at %s has keys, which would stay valid; keep the endpoint, set enabled: false here and in the teams, and take it out once no Team has status.storage.bucket.keysMade" .name .endpoint) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
