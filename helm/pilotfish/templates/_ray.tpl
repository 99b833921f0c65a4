{{- /* The configuration under Ray: as elsewhere, plus which worker group each pool is pinned to. */ -}}
{{- define "pilotfish.rayConfig" -}}
{{- $config := include "pilotfish.config" . | fromYaml }}
{{- $deployment := default dict $config.deployment }}
{{- range $name, $pool := .Values.pools }}
{{- $settings := default dict (get $deployment $name) }}
{{- $_ := set $settings "labels" (merge (dict "pilotfish-pool" $name) (default dict $settings.labels)) }}
{{- if and (ne $name "orchestrator") $pool.autoscaling.enabled }}
{{- $bounds := dict "min_replicas" (int $pool.autoscaling.minReplicas) "max_replicas" (int $pool.autoscaling.maxReplicas) "target_sequences" (float64 $pool.autoscaling.threshold) }}
{{- $_ := set $settings "autoscaling" (merge $bounds (default dict $settings.autoscaling)) }}
{{- end }}
{{- $_ := set $deployment $name $settings }}
{{- end }}
{{- $_ := set $config "deployment" $deployment }}
{{- $_ := set $config.orchestrator "num_replicas" (int .Values.pools.orchestrator.replicas) }}
{{- toYaml $config }}
{{- end }}

{{- define "pilotfish.serveConfig" -}}
# A proxy on every node that has replicas: KubeRay asks it whether a worker is ready. No request passes it.
proxy_location: EveryNode
http_options: {host: {{ .Values.listenHost | quote }}, port: {{ .Values.ray.servePort }}}
logging_config: {enable_access_log: false}
applications:
  - name: pilotfish
    import_path: pilotfish.serve_app:build
    # A proxy without a route is never ready. The APIs are the orchestrator's own, on ports of their own.
    route_prefix: /
    args:
      {{- include "pilotfish.rayConfig" . | nindent 6 }}
{{- end }}

{{- /* Container of a Ray pod: dict "root" $ "name" "ray-head" or "ray-worker" "ports" LIST. */ -}}
{{- define "pilotfish.rayContainer" -}}
name: {{ .name }}
image: {{ include "pilotfish.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext: {{- toYaml .root.Values.securityContext | nindent 2 }}
ports:
  # KubeRay puts ports named serve or serve-* into a Service over all workers: the public ones are not named so.
  - {name: serve, containerPort: {{ .root.Values.ray.servePort }}}
  - {name: metrics, containerPort: {{ .root.Values.ports.metrics }}}
  {{- with .ports }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  {{- include "pilotfish.env" .root | trim | nindent 2 }}
  {{- with .extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
