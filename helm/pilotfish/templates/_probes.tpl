{{- /* Probes of a pool: dict "root" $ "pool" NAME. An orchestrator is asked on a port of its own, which no client can
fill. A replica is asked by gRPC's own health service, under its names `liveness` and `readiness`. Kubernetes' gRPC probe
speaks no TLS: with TLS replicas (which listen when their model is loaded) are asked by a connection and, for liveness,
by /metrics, which the same event loop answers. */ -}}
{{- define "pilotfish.probes" -}}
{{- $pool := get .root.Values.pools .pool }}
startupProbe:
  {{- include "pilotfish.livenessCheck" . | trim | nindent 2 }}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: {{ max 1 (div $pool.startupSeconds 5) }}
livenessProbe:
  {{- include "pilotfish.livenessCheck" . | trim | nindent 2 }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  {{- include "pilotfish.readinessCheck" . | trim | nindent 2 }}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end }}

{{- define "pilotfish.livenessCheck" -}}
{{- $security := .root.Values.security }}
{{- if eq .pool "orchestrator" }}
httpGet: {path: /health, port: probes}
{{- else if $security.internal.tls.enabled }}
httpGet: {path: /metrics, port: metrics}
{{- else }}
grpc: {port: {{ get .root.Values.ports .pool }}, service: liveness}
{{- end }}
{{- end }}

{{- define "pilotfish.readinessCheck" -}}
{{- $security := .root.Values.security }}
{{- if eq .pool "orchestrator" }}
httpGet: {path: /ready, port: probes}
{{- else if $security.internal.tls.enabled }}
tcpSocket: {port: grpc}
{{- else }}
grpc: {port: {{ get .root.Values.ports .pool }}, service: readiness}
{{- end }}
{{- end }}
