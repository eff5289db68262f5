{{/* CPU (2, 0.5 or 500m) in millicores. */}}
{{- define "spectrum.millicores" -}}
{{- if kindIs "string" . }}{{ trimSuffix "m" . }}{{ else }}{{ mulf . 1000 }}{{ end }}
{{- end }}

{{/* A size such as 2Gi in bytes. */}}
{{- define "spectrum.bytes" -}}
{{- $units := dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- mulf (regexFind "^[0-9.]+" . | float64) (get $units (regexFind "..$" .)) }}
{{- end }}
