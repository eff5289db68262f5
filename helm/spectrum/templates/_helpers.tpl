{{/* Labels that never change: selectors are made of them. Takes {root, component}. */}}
{{- define "spectrum.selector" -}}
app.kubernetes.io/name: spectrum
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Labels of every object. Takes {root, component}. */}}
{{- define "spectrum.labels" -}}
{{ include "spectrum.selector" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "spectrum.image" -}}
image: {{ printf "%s:%s" .name .tag | quote }}
imagePullPolicy: {{ .pullPolicy | default "IfNotPresent" }}
{{- end }}

{{/* What every pod of ours runs as: it passes the pod security standard `restricted`. */}}
{{- define "spectrum.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  runAsGroup: 1000
  fsGroup: 1000
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "spectrum.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/*
A table keyed by name, as JSON, without the entries that are null: Helm drops a null only where
the shipped values have the key.
*/}}
{{- define "spectrum.table" -}}
{{- $entries := dict }}
{{- range $name, $entry := . }}
{{- if not (kindIs "invalid" $entry) }}{{ $_ := set $entries $name $entry }}{{ end }}
{{- end }}
{{- $entries | toJson }}
{{- end }}

{{- define "spectrum.teamNamespacePrefix" -}}
{{ .Values.teamNamespacePrefix | default (printf "%s-" .Release.Namespace) }}
{{- end }}

{{/* Every accelerator that any profile can ask for, so that quotas name each of them. */}}
{{- define "spectrum.accelerators" -}}
{{- $found := dict }}
{{- range include "spectrum.table" .Values.profiles | fromJson }}
{{- if gt (int .gpu) 0 }}{{ $_ := set $found (.gpuResource | default "nvidia.com/gpu") true }}{{ end }}
{{- end }}
{{- keys $found | sortAlpha | toJson }}
{{- end }}

{{/* What the hub's configuration reads, as JSON. */}}
{{- define "spectrum.hubValues" -}}
{{- $groups := include "spectrum.table" .Values.auth.groups | fromJson }}
{{- dict
  "hub" (pick .Values.hub "baseUrl")
  "auth" (merge (dict "groups" $groups) (omit .Values.auth "groups"))
  "images" (include "spectrum.table" .Values.images | fromJson)
  "profiles" (include "spectrum.table" .Values.profiles | fromJson)
  "singleuser" .Values.singleuser
  | toPrettyJson
}}
{{- end }}

{{/*
The Secret's data in base64, as JSON. What the cluster holds is kept, what is missing is made;
remembered within one rendering, so that the Secret and the checksums of it agree.
*/}}
{{- define "spectrum.secretData" -}}
{{- if not (hasKey .Values "_secretData") }}
{{- $kept := (lookup "v1" "Secret" .Release.Namespace "hub").data | default dict }}
{{- $data := dict
  "proxyToken" (randAlphaNum 64 | b64enc)
  "cookieSecret" (randBytes 32 | b64dec | printf "%x" | b64enc)
  "cryptKey" (randBytes 32 | b64dec | printf "%x" | b64enc)
  "userPassword" (randAlphaNum 16 | b64enc)
  "adminPassword" (randAlphaNum 40 | b64enc)
}}
{{- range $key, $_ := $data }}
{{- with get $kept $key }}{{ $_ := set $data $key . }}{{ end }}
{{- end }}
{{- $_ := set .Values "_secretData" $data }}
{{- end }}
{{- get .Values "_secretData" | toJson }}
{{- end }}
