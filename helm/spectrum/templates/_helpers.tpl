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

{{/* What the controller is told of storage, as JSON. */}}
{{- define "spectrum.storage" -}}
{{- $datasets := include "spectrum.table" .Values.storage.datasets | fromJson }}
{{- merge (dict "datasets" $datasets) (omit .Values.storage "datasets") | toJson }}
{{- end }}

{{/* What the hub's configuration reads, as JSON: of the sign-in methods only the chosen one. */}}
{{- define "spectrum.hubValues" -}}
{{- $auth := pick .Values.auth "method" "contact" "refreshAge" }}
{{- if eq .Values.auth.method "oauth" }}
{{- $auth = merge $auth (pick .Values.auth "visitorsRefreshAge" "groupsMaxAge") }}
{{- $_ := set $auth "oauth" (omit .Values.auth.oauth "clientSecret") }}
{{- else }}
{{- $auth = merge $auth (pick .Values.auth "acceptSharedPassword" "admins" "users") }}
{{- $_ := set $auth "groups" (include "spectrum.table" .Values.auth.groups | fromJson) }}
{{- end }}
{{- $templates := dict }}
{{- range $name, $template := include "spectrum.table" .Values.teamTemplates | fromJson }}
{{- $_ := set $templates $name (pick $template "pattern" "max") }}
{{- end }}
{{- dict
  "hub" (pick .Values.hub "baseUrl")
  "auth" $auth
  "images" (include "spectrum.table" .Values.images | fromJson)
  "profiles" (include "spectrum.table" .Values.profiles | fromJson)
  "singleuser" .Values.singleuser
  "storage" (pick .Values.storage "home")
  "teamTemplates" $templates
  | toPrettyJson
}}
{{- end }}

{{/* What the service reads, as JSON. */}}
{{- define "spectrum.serviceValues" -}}
{{- $service := pick .Values.service "leavingGrace" "idleMinutes" }}
{{- $_ := set $service "dbUrl" .Values.service.db.url }}
{{- dict
  "hub" (pick .Values.hub "baseUrl")
  "service" $service
  "auth" (pick .Values.auth "contact")
  "images" (include "spectrum.table" .Values.images | fromJson)
  "profiles" (include "spectrum.table" .Values.profiles | fromJson)
  "culling" .Values.culling
  "gpuHours" .Values.gpuHours
  "metrics" .Values.metrics
  "teamNamespacePrefix" (include "spectrum.teamNamespacePrefix" .)
  | toPrettyJson
}}
{{- end }}

{{/*
The Secret's data in base64, as JSON. What the cluster holds is kept, what is missing is made;
remembered within one rendering, so that the Secret and the checksums of it agree. The client
secret of the identity provider cannot be made: values bring it, or the cluster has it.
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
  "serviceToken" (randAlphaNum 64 | b64enc)
  "serviceCookieSecret" (randBytes 32 | b64dec | printf "%x" | b64enc)
  "auditTokenHub" (randAlphaNum 64 | b64enc)
  "auditTokenController" (randAlphaNum 64 | b64enc)
}}
{{- range $key, $_ := $data }}
{{- with get $kept $key }}{{ $_ := set $data $key . }}{{ end }}
{{- end }}
{{- if eq .Values.auth.method "oauth" }}
{{- $given := .Values.auth.oauth.clientSecret | b64enc | default (get $kept "oauthClientSecret") }}
{{- with $given }}{{ $_ := set $data "oauthClientSecret" . }}{{ end }}
{{- end }}
{{- $_ := set .Values "_secretData" $data }}
{{- end }}
{{- get .Values "_secretData" | toJson }}
{{- end }}

{{/* Keys of the Secret that a component's pod mounts, as JSON. Takes {root, component}. */}}
{{- define "spectrum.secretKeys" -}}
{{- $signIn := list "userPassword" "adminPassword" }}
{{- if eq .root.Values.auth.method "oauth" }}{{ $signIn = list "oauthClientSecret" }}{{ end }}
{{- $keys := dict
  "hub" (concat (list "proxyToken" "cookieSecret" "cryptKey" "serviceToken" "auditTokenHub") $signIn)
  "service" (list "serviceToken" "serviceCookieSecret" "auditTokenHub" "auditTokenController")
  "controller" (list "auditTokenController")
}}
{{- get $keys .component | toJson }}
{{- end }}

{{/* The volume of a component's own secrets: what a pod does not need, it does not have. */}}
{{- define "spectrum.secretVolume" -}}
- name: secrets
  secret:
    secretName: hub
    defaultMode: 0440
    items:
      {{- range include "spectrum.secretKeys" . | fromJsonArray }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
{{- end }}

{{/* Changes with the secrets that the component mounts, and with no others. */}}
{{- define "spectrum.secretChecksum" -}}
{{- $data := include "spectrum.secretData" .root | fromJson }}
{{- $mounted := dict }}
{{- range include "spectrum.secretKeys" . | fromJsonArray }}
{{- $_ := set $mounted . (get $data .) }}
{{- end }}
{{- $mounted | toJson | sha256sum }}
{{- end }}
