{{- /* The whole configuration as YAML: .Values.config, and what the chart decides. validate.yaml refuses values for the
latter. */ -}}
{{- define "pilotfish.config" -}}
{{- $config := deepCopy .Values.config }}
{{- range $section := list "target" "draft" "orchestrator" "telemetry" }}
{{- $_ := set $config $section (default dict (get $config $section)) }}
{{- end }}
{{- range $name := list "target" "draft" }}
{{- $pool := get $.Values.pools $name }}
{{- $replica := get $config $name }}
{{- $_ := set $replica "host" $.Values.listenHost }}
{{- $_ := set $replica "port" (get $.Values.ports $name | int) }}
{{- $_ := set $replica "metrics_port" ($.Values.ports.metrics | int) }}
{{- $_ := set $replica "num_replicas" (ternary (int $pool.replicas) 0 $pool.enabled) }}
{{- $_ := set $replica "engine" (include "pilotfish.engine" (dict "pool" $pool "engine" (default dict $replica.engine)) | fromYaml) }}
{{- end }}
{{- if not .Values.pools.target.enabled }}{{ $_ := unset $config.target "num_replicas" }}{{ end }}
{{- $public := $config.orchestrator }}
{{- $_ := set $public "host" .Values.listenHost }}
{{- $_ := set $public "port" (int .Values.ports.grpc) }}
{{- $http := default dict $public.http }}
{{- $hosts := concat (default list $http.allowed_hosts) (include "pilotfish.hostNames" . | fromYamlArray) | uniq }}
{{- $_ := set $public "http" (merge (dict "port" (int .Values.ports.http) "probe_port" (int .Values.ports.probes) "allowed_hosts" $hosts) $http) }}
{{- if eq .Values.mode "deployments" }}
{{- range $name := list "target" "draft" }}
{{- if (get $.Values.pools $name).enabled }}
{{- /* All pods of the pool: a headless Service has an address for each, a Service for others than orchestrators one. */ -}}
{{- $address := printf "dns:///%s:%d" (include "pilotfish.serviceName" (dict "root" $ "pool" $name)) (get $.Values.ports $name | int) }}
{{- $_ := set $public (printf "%s_addresses" $name) (list $address) }}
{{- end }}
{{- end }}
{{- end }}
{{- $_ := set $config.telemetry "metrics_host" .Values.listenHost }}
{{- if .Values.otel.enabled }}{{ $_ := set $config.telemetry "otlp_endpoint" .Values.otel.endpoint }}{{ end }}
{{- $security := merge (dict "internal" (include "pilotfish.internalSecurity" . | fromYaml) "public" (include "pilotfish.publicSecurity" . | fromYaml)) (default dict $config.security) }}
{{- $_ := set $config "security" $security }}
{{- $_ := set $config "cache_dir" "/models" }}
{{- toYaml $config }}
{{- end }}

{{- /* Names that clients have for the HTTP API, as far as the values tell. */ -}}
{{- define "pilotfish.hostNames" -}}
{{- $service := include "pilotfish.fullname" . }}
{{- $namespace := .Release.Namespace }}
- {{ $service }}
- {{ $service }}.{{ $namespace }}
- {{ $service }}.{{ $namespace }}.svc
- {{ $service }}.{{ $namespace }}.svc.cluster.local
{{- if and .Values.ingress.enabled .Values.ingress.host }}
- {{ .Values.ingress.host | quote }}
{{- end }}
{{- if .Values.httpRoute.enabled }}
{{- range .Values.httpRoute.hostnames }}
- {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The sections of the configuration that a pool reads: dict "pool" NAME "config" CONFIG. */ -}}
{{- define "pilotfish.poolConfig" -}}
{{- $config := omit (deepCopy .config) "deployment" }}
{{- range $name := list "target" "draft" }}
{{- $section := omit (get $config $name) "num_replicas" }}
{{- $_ := set $config $name (ternary $section (omit $section "engine") (eq $name $.pool)) }}
{{- end }}
{{- with pick (dig "deployment" "orchestrator" dict .config) "drain_s" }}
{{- $_ := set $config "deployment" (dict "orchestrator" .) }}
{{- end }}
{{- if ne .pool "orchestrator" }}
{{- $config = omit $config "orchestrator" }}
{{- $_ := set $config "security" (omit $config.security "public") }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{- /* Where a pool computes, unless the values say it themselves. */ -}}
{{- define "pilotfish.engine" -}}
{{- $device := ternary (dict "device" "cuda") dict (gt (int .pool.gpus) 0) }}
{{- merge (deepCopy .engine) $device | toYaml }}
{{- end }}

{{- define "pilotfish.internalSecurity" -}}
{{- with .Values.security.internal }}
{{- if .token.existingSecret }}
token_file: /etc/pilotfish/links/token
{{- end }}
{{- if .tls.enabled }}
certificate: /etc/pilotfish/links-tls/tls.crt
private_key: /etc/pilotfish/links-tls/tls.key
ca: /etc/pilotfish/links-tls/ca.crt
server_name: {{ .tls.serverName }}
{{- end }}
allow_unauthenticated: {{ .allowUnauthenticated }}
{{- end }}
{{- end }}

{{- define "pilotfish.publicSecurity" -}}
{{- with .Values.security.public }}
{{- if .tls.enabled }}
certificate: /etc/pilotfish/public-tls/tls.crt
private_key: /etc/pilotfish/public-tls/tls.key
{{- if .tls.clientCA }}
client_ca: /etc/pilotfish/public-tls/ca.crt
{{- end }}
{{- end }}
{{- if .apiKeys.existingSecret }}
api_keys_file: /etc/pilotfish/api-keys/api-keys.yaml
{{- end }}
{{- end }}
{{- end }}

{{- /* Changes when pods of a pool must be replaced: with what they read and nothing else, for loading a large model takes
minutes. dict "root" $ "pool" NAME. */ -}}
{{- define "pilotfish.configChecksum" -}}
{{- include "pilotfish.poolConfig" (dict "pool" .pool "config" (include "pilotfish.config" .root | fromYaml)) | sha256sum }}
{{- end }}
