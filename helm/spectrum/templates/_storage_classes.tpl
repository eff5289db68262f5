{{/*
Which StorageClasses the values name that the cluster has not: for the notes, since a class may
come later, and an API server that is not asked has none.
*/}}
{{- define "spectrum.storageClasses.missing" -}}
{{- $asked := dict }}
{{- range $kind := list "home" "share" "scratch" }}
{{- $volume := get $.Values.storage $kind }}
{{- if or (eq $kind "home") $volume.enabled }}
{{- $_ := set $asked (printf "storage.%s" $kind) ($volume.storageClass | default "") }}
{{- end }}
{{- end }}
{{- range $name, $team := include "spectrum.table" .Values.teams | fromJson }}
{{- range $kind, $volume := $team.storage }}
{{- with $volume.storageClass }}
{{- $_ := set $asked (printf "teams.%s.storage.%s" $name $kind) . }}
{{- end }}
{{- end }}
{{- end }}
{{- $there := dict }}
{{- range (lookup "storage.k8s.io/v1" "StorageClass" "" "").items }}
{{- $_ := set $there .metadata.name true }}
{{- if eq (index (.metadata.annotations | default dict) "storageclass.kubernetes.io/is-default-class" | default "") "true" }}
{{- $_ := set $there "" true }}
{{- end }}
{{- end }}
{{- range $place, $class := $asked }}
{{- if not (hasKey $there $class) }}

{{ if $class -}}
There is no StorageClass {{ $class }}, which {{ $place }} asks for: no such volume is made until it is there, or {{ $place }}.storageClass names another one.
{{- else -}}
There is no default StorageClass, and {{ $place }} names none: no such volume is made until {{ $place }}.storageClass names one.
{{- end }}
{{- end }}
{{- end }}
{{- end }}
