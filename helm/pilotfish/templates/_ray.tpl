{{- /* What Serve runs: an application for each pool, as `pilotfish config --serve` writes it. What stands in `deployments`
Serve changes in place; a change of `args` replaces that application's replicas. */ -}}
{{- define "pilotfish.serveConfig" -}}
{{- $config := include "pilotfish.config" . | fromYaml }}
# A proxy on every node that has replicas: KubeRay asks it whether a worker is ready. No request passes it.
proxy_location: EveryNode
http_options: {host: {{ .Values.listenHost | quote }}, port: {{ .Values.ray.servePort }}}
logging_config: {enable_access_log: false}
applications:
  {{- range $name := list "target" "draft" "orchestrator" }}
  {{- if (get $.Values.pools $name).enabled }}
  {{- $argument := dict "root" $ "pool" $name "config" $config }}
  - name: {{ ternary "pilotfish" (printf "pilotfish-%s" $name) (eq $name "orchestrator") }}
    import_path: pilotfish.serve_app:build_{{ $name }}
    {{- if eq $name "orchestrator" }}
    # A proxy is ready when it has a route to a replica. The APIs are the orchestrator's own, on ports of their own.
    route_prefix: /
    {{- else }}
    route_prefix: null
    {{- end }}
    args: {{- include "pilotfish.poolConfig" $argument | nindent 6 }}
    deployments:
      - name: {{ $name }}
        {{- include "pilotfish.servePlacement" $argument | trim | nindent 8 }}
        {{- include "pilotfish.serveReplicas" $argument | trim | nindent 8 }}
  {{- end }}
  {{- end }}
{{- end }}

{{- /* On which nodes, with how much of them. A replica of several ranks is a placement group on one node: itself, whose
engine is rank 0, and the other ranks. */ -}}
{{- define "pilotfish.servePlacement" -}}
{{- $where := dig "deployment" .pool dict .config }}
{{- $labels := merge (dict "pilotfish-pool" .pool) (dig "labels" dict $where) }}
{{- $cpus := dig "num_cpus" 0.1 $where }}
{{- $gpus := dig "num_gpus" (ternary 1 0 (gt (int (get .root.Values.pools .pool).gpus) 0)) $where }}
{{- $ranks := ternary (dig "target" "tensor_parallel_size" 1 .config | int) 1 (eq .pool "target") }}
ray_actor_options:
  num_cpus: {{ $cpus }}
  num_gpus: {{ $gpus }}
  {{- with $where.resources }}
  resources: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if eq $ranks 1 }}
  label_selector: {{- toYaml $labels | nindent 4 }}
  {{- else }}
{{- $rank := merge (dict "CPU" $cpus) (ternary (dict "GPU" $gpus) dict (gt (float64 $gpus) 0.0)) }}
placement_group_strategy: STRICT_PACK
placement_group_bundles:
  - {{ merge (deepCopy $rank) (default dict $where.resources) | toJson }}
  {{- range until (sub $ranks 1 | int) }}
  - {{ toJson $rank }}
  {{- end }}
placement_group_bundle_label_selector:
  {{- range until $ranks }}
  - {{ toJson $labels }}
  {{- end }}
{{- end }}
{{- $limit := get $where "max_replicas_per_node" }}
{{- if and (eq .pool "orchestrator") (gt (int .root.Values.pools.orchestrator.replicas) 1) }}{{ $limit = 1 }}{{ end }}
{{- if and $limit (eq $ranks 1) }}
# Orchestrators listen on one port; for replicas of several ranks Ray knows no limit.
max_replicas_per_node: {{ $limit }}
{{- end }}
{{- with $where.surge_percent }}
max_surge_percent: {{ . }}
{{- end }}
{{- end }}

{{- define "pilotfish.serveReplicas" -}}
{{- $pool := get .root.Values.pools .pool }}
{{- if $pool.autoscaling.enabled }}
{{- $settings := dig "deployment" .pool "autoscaling" dict .config }}
autoscaling_config:
  min_replicas: {{ $pool.autoscaling.minReplicas }}
  initial_replicas: {{ max $pool.autoscaling.minReplicas (min $pool.autoscaling.maxReplicas $pool.replicas) }}
  max_replicas: {{ $pool.autoscaling.maxReplicas }}
  target_ongoing_requests: {{ $pool.autoscaling.threshold }}
  metrics_interval_s: {{ dig "report_interval_s" 10 $settings }}
  look_back_period_s: {{ dig "look_back_s" 30 $settings }}
  upscale_delay_s: {{ dig "upscale_delay_s" 30 $settings }}
  downscale_delay_s: {{ dig "downscale_delay_s" 600 $settings }}
  policy:
    policy_function: pilotfish.pools.autoscaling:LoadPolicy
    policy_kwargs: {target_kv_usage: {{ dig "target_kv_usage" 0.8 $settings }}}
{{- else }}
num_replicas: {{ $pool.replicas }}
{{- end }}
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
