{{- /* At most 41 characters: KubeRay appends its own to a RayService's name. validate.yaml refuses longer ones, because a
cut name could meet another release's. */ -}}
{{- define "pilotfish.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride }}
{{- else }}
{{- $name := include "pilotfish.name" . }}
{{- if contains $name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ $name }}{{ end }}
{{- end }}
{{- end }}

{{- define "pilotfish.name" -}}
{{ default .Chart.Name .Values.nameOverride }}
{{- end }}

{{- /* Service of a pool: dict "root" $ "pool" NAME. The orchestrator's is the release's own name. */ -}}
{{- define "pilotfish.serviceName" -}}
{{ include "pilotfish.fullname" .root }}{{ if ne .pool "orchestrator" }}-{{ .pool }}{{ end }}
{{- end }}

{{- /* What never changes while a release lives: Deployments cannot change it. */ -}}
{{- define "pilotfish.selector" -}}
app.kubernetes.io/name: {{ include "pilotfish.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "pilotfish.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "pilotfish.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: pilotfish
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* metadata of an object: dict "root" $ "name" NAME, and optionally "component", "labels" and "annotations". */ -}}
{{- define "pilotfish.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "pilotfish.labels" .root | nindent 2 }}
  {{- with .component }}
  app.kubernetes.io/component: {{ . }}
  {{- end }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (default dict .annotations) .root.Values.commonAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "pilotfish.repository" -}}
{{- $registry := default (dig "imageRegistry" "" .Values.global) .Values.image.registry }}
{{- with $registry }}{{ . }}/{{ end }}{{ .Values.image.repository }}
{{- end }}

{{- define "pilotfish.routerImage" -}}
{{- if .Values.image.routerTag }}{{ include "pilotfish.repository" . }}:{{ .Values.image.routerTag }}
{{- else }}{{ include "pilotfish.image" . }}{{ end }}
{{- end }}

{{- define "pilotfish.image" -}}
{{- include "pilotfish.repository" . }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ default .Chart.AppVersion .Values.image.tag }}{{ end }}
{{- end }}

{{- define "pilotfish.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "pilotfish.fullname" .) .Values.serviceAccount.name }}
{{- else }}{{ default "default" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{- /* Whether there is a `helm test`. Clients of the API may need a certificate, or a key. Without an orchestrator it asks
the draft pool's health, for which mutual TLS wants a certificate as well. Empty: no. */ -}}
{{- define "pilotfish.hasTest" -}}
{{- $public := .Values.security.public }}
{{- $canAsk := and (not $public.tls.clientCA) (or (not $public.apiKeys.existingSecret) .Values.tests.apiKeySecret) }}
{{- if and .Values.tests.enabled (ternary $canAsk (not .Values.security.internal.tls.enabled) .Values.pools.orchestrator.enabled) }}yes{{ end }}
{{- end }}

{{- define "pilotfish.internalTlsSecret" -}}
{{ default (printf "%s-links" (include "pilotfish.fullname" .)) .Values.security.internal.tls.existingSecret }}
{{- end }}

{{- define "pilotfish.publicTlsSecret" -}}
{{ default (printf "%s-public" (include "pilotfish.fullname" .)) .Values.security.public.tls.existingSecret }}
{{- end }}

{{- /* Of all metrics. */ -}}
{{- define "pilotfish.metricsPrefix" -}}
{{- dig "telemetry" "metrics_prefix" "pilotfish_" (default dict .Values.config) -}}
{{- end -}}
