{{- /* What a JSON schema cannot say. Each check gets dict "root" $ "problems" LIST and appends to the list what is wrong
and what to change. */ -}}

{{- define "pilotfish.problem" -}}
{{- $_ := set .checks "problems" (append .checks.problems .text) }}
{{- end }}

{{- define "pilotfish.checkNames" -}}
{{- $values := .root.Values }}
{{- $fullname := include "pilotfish.fullname" .root }}
{{- if gt (len $fullname) 41 }}
{{- include "pilotfish.problem" (dict "checks" . "text" (printf "the name %s has %d characters, and KubeRay and Services leave room for 41: choose a shorter release name, or set fullnameOverride" $fullname (len $fullname))) }}
{{- end }}
{{- if not (has $values.mode (list "deployments" "rayservice")) }}
{{- include "pilotfish.problem" (dict "checks" . "text" (printf "mode is %q: set it to deployments (plain Kubernetes) or rayservice (KubeRay)" (toString $values.mode))) }}
{{- end }}
{{- end }}

{{- define "pilotfish.checkPools" -}}
{{- $pools := .root.Values.pools }}
{{- $config := .root.Values.config }}
{{- range $name, $pool := $pools }}
{{- if and (gt (int $pool.nodeGpus) 0) (gt (int $pool.gpus) (int $pool.nodeGpus)) }}
{{- include "pilotfish.problem" (dict "checks" $ "text" (printf "pools.%s.gpus is %d, more than a node of the pool has (pools.%s.nodeGpus: %d): one replica is one pod on one node, so lower gpus or choose nodes with more" $name (int $pool.gpus) $name (int $pool.nodeGpus))) }}
{{- end }}
{{- if and $pool.autoscaling.enabled (gt (int $pool.autoscaling.minReplicas) (int $pool.autoscaling.maxReplicas)) }}
{{- include "pilotfish.problem" (dict "checks" $ "text" (printf "pools.%s.autoscaling.minReplicas (%d) is above maxReplicas (%d)" $name (int $pool.autoscaling.minReplicas) (int $pool.autoscaling.maxReplicas))) }}
{{- end }}
{{- if and (eq $name "orchestrator") $pool.autoscaling.enabled (eq $.root.Values.mode "rayservice") }}
{{- include "pilotfish.problem" (dict "checks" $ "text" "pools.orchestrator.autoscaling works in mode deployments: under Ray set pools.orchestrator.replicas") }}
{{- end }}
{{- end }}
{{- if gt (int $pools.orchestrator.gpus) 0 }}
{{- include "pilotfish.problem" (dict "checks" . "text" "pools.orchestrator.gpus must be 0: an orchestrator computes nothing") }}
{{- end }}
{{- $ranks := int (dig "target" "tensor_parallel_size" 1 $config) }}
{{- $gpus := int $pools.target.gpus }}
{{- if and (gt $gpus 0) (ne $ranks $gpus) }}
{{- include "pilotfish.problem" (dict "checks" . "text" (printf "config.target.tensor_parallel_size (%d) must equal pools.target.gpus (%d): each rank computes on a GPU of its own, and a GPU without a rank is idle" $ranks $gpus)) }}
{{- end }}
{{- range $name := list "target" "draft" }}
{{- $device := dig $name "engine" "device" "" $config | toString }}
{{- $gpus := int (get $pools $name).gpus }}
{{- if and (hasPrefix "cuda" $device) (eq $gpus 0) }}
{{- include "pilotfish.problem" (dict "checks" $ "text" (printf "config.%s.engine.device is %s, and pools.%s.gpus is 0: set gpus, or device to cpu" $name $device $name)) }}
{{- end }}
{{- if and (regexMatch "^cuda:[1-9]" $device) (eq $gpus 1) }}
{{- include "pilotfish.problem" (dict "checks" $ "text" (printf "config.%s.engine.device is %s, and a pod sees only the GPU that it is given: leave device out" $name $device)) }}
{{- end }}
{{- if and (eq $device "cpu") (gt $gpus 0) }}
{{- include "pilotfish.problem" (dict "checks" $ "text" (printf "pools.%s.gpus is %d, and config.%s.engine.device is cpu: leave device out" $name $gpus $name)) }}
{{- end }}
{{- end }}
{{- $proposer := dig "draft" "proposer" "auto" $config }}
{{- if and $pools.draft.enabled (gt (int $pools.draft.gpus) 0) (has $proposer (list "auto" "ngram" "suffix")) }}
{{- include "pilotfish.problem" (dict "checks" . "text" (printf "pools.draft.gpus is %d, and config.draft.proposer %s only looks tokens up: set gpus to 0, or a proposer that runs a model" (int $pools.draft.gpus) $proposer)) }}
{{- end }}
{{- if gt (int $pools.draft.gpus) 1 }}
{{- include "pilotfish.problem" (dict "checks" . "text" (printf "pools.draft.gpus is %d, and a drafter computes on one: set gpus to 1, and replicas to as many as you have" (int $pools.draft.gpus))) }}
{{- end }}
{{- if ne $pools.orchestrator.enabled $pools.target.enabled }}
{{- include "pilotfish.problem" (dict "checks" . "text" "pools.orchestrator and pools.target need each other: enable both, or neither (a draft pool for others)") }}
{{- end }}
{{- if not (or $pools.orchestrator.enabled $pools.draft.enabled) }}
{{- include "pilotfish.problem" (dict "checks" . "text" "all pools are disabled: enable pools.draft, or pools.orchestrator and pools.target") }}
{{- end }}
{{- if and (not $pools.orchestrator.enabled) (eq .root.Values.mode "rayservice") }}
{{- include "pilotfish.problem" (dict "checks" . "text" "a draft pool for others needs mode deployments: under Ray its replicas have no fixed port") }}
{{- end }}
{{- end }}

{{- /* A quantity of memory in 10^9 bytes; empty for a unit that is not known. */ -}}
{{- define "pilotfish.gigabytes" -}}
{{- $text := toString . }}
{{- range $unit, $size := dict "Ti" 1099.511627776 "Gi" 1.073741824 "Mi" 0.001048576 "T" 1000.0 "G" 1.0 "M" 0.001 }}
{{- if regexMatch (printf "^[0-9.]+%s$" $unit) $text }}{{ mulf (trimSuffix $unit $text | float64) $size }}{{ end }}
{{- end }}
{{- end }}

{{- /* On a CPU the weights lie in the pod's memory. All that is known of their size is a name such as llama-3.1-8b. */ -}}
{{- define "pilotfish.checkMemory" -}}
{{- $values := .root.Values }}
{{- $proposer := dig "draft" "proposer" "auto" $values.config }}
{{- range $name := list "target" "draft" }}
{{- $pool := get $values.pools $name }}
{{- $model := dig $name "model" "" $values.config | toString }}
{{- $billions := regexFind "[0-9.]+[bB]($|[^a-zA-Z])" (base $model) | regexFind "[0-9]+(\\.[0-9]+)?" }}
{{- $limit := include "pilotfish.gigabytes" (dig "limits" "memory" "" $pool.resources) }}
{{- $size := dict "none" 2.0 "lossless" 2.0 "int8" 1.0 "int4" 0.6 }}
{{- $each := get $size (dig $name "engine" "quantization" "none" $values.config | toString) }}
{{- if and $pool.enabled $billions $limit $each (eq (int $pool.gpus) 0) (or (eq $name "target") (eq $proposer "model")) }}
{{- $needed := mulf ($billions | float64) $each }}
{{- if gt $needed ($limit | float64) }}
{{- include "pilotfish.problem" (dict "checks" $ "text" (printf "pools.%s.resources.limits.memory is %s, and the weights of %s alone take some %.0f GB: raise it, set config.%s.engine.quantization to int8 or int4, or set gpus" $name $pool.resources.limits.memory $model $needed $name)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "pilotfish.checkConfig" -}}
{{- $config := .root.Values.config }}
{{- $managed := dict "target.host" "listenHost" "target.port" "ports.target" "target.metrics_port" "ports.metrics" "target.num_replicas" "pools.target.replicas" "draft.host" "listenHost" "draft.port" "ports.draft" "draft.metrics_port" "ports.metrics" "draft.num_replicas" "pools.draft.replicas" "orchestrator.host" "listenHost" "orchestrator.port" "ports.grpc" "orchestrator.num_replicas" "pools.orchestrator.replicas" "orchestrator.http.port" "ports.http" "orchestrator.http.probe_port" "ports.probes" "orchestrator.target_addresses" "pools.target" "orchestrator.draft_addresses" "pools.draft" "telemetry.metrics_host" "listenHost" "telemetry.otlp_endpoint" "otel.endpoint" "security.internal" "security.internal" "cache_dir" "modelCache" }}
{{- range $path, $value := $managed }}
{{- $node := $config }}
{{- range splitList "." $path }}
{{- $node = ternary $node dict (kindIs "map" $node) }}
{{- $node = ternary (get $node .) nil (hasKey $node .) }}
{{- end }}
{{- if not (kindIs "invalid" $node) }}
{{- include "pilotfish.problem" (dict "checks" $ "text" (printf "config.%s is the chart's to set: use the value %s instead" $path $value)) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "pilotfish.checkLearning" -}}
{{- $learning := dig "draft" "learning" (dict) .root.Values.config }}
{{- if and $learning.enabled (eq .root.Values.modelCache.type "emptyDir") (not $learning.folder) }}
{{- include "pilotfish.problem" (dict "checks" . "text" "config.draft.learning.enabled needs a folder that the trainer shares with the pods that draft: set modelCache.type to pvc or existingClaim (ReadWriteMany), or to hostPath on one node") }}
{{- end }}
{{- end }}

{{- define "pilotfish.checkSecrets" -}}
{{- $internal := .root.Values.security.internal }}
{{- $public := .root.Values.security.public }}
{{- if not (or $internal.token.existingSecret $internal.tls.enabled $internal.allowUnauthenticated) }}
{{- include "pilotfish.problem" (dict "checks" . "text" (printf "security.internal.token.existingSecret is empty, and without token and TLS replicas serve strangers: set it after `kubectl -n %s create secret generic pilotfish-links --from-literal=token=$(openssl rand -hex 32)`, or enable security.internal.tls, or allowUnauthenticated on a network of their own" .root.Release.Namespace)) }}
{{- end }}
{{- range $side, $tls := dict "internal" $internal.tls "public" $public.tls }}
{{- if and $tls.enabled (not $tls.existingSecret) (not $tls.certManager.enabled) }}
{{- include "pilotfish.problem" (dict "checks" $ "text" (printf "security.%s.tls needs a certificate: set existingSecret, or certManager.enabled" $side)) }}
{{- end }}
{{- if and $tls.enabled $tls.certManager.enabled (not (dig "name" "" $tls.certManager.issuerRef)) }}
{{- include "pilotfish.problem" (dict "checks" $ "text" (printf "security.%s.tls.certManager needs issuerRef.name" $side)) }}
{{- end }}
{{- end }}
{{- if and $public.tls.clientCA (not $public.tls.enabled) }}
{{- include "pilotfish.problem" (dict "checks" . "text" "security.public.tls.clientCA needs security.public.tls.enabled: without TLS no client shows a certificate") }}
{{- end }}
{{- range $key := list "podMonitor" "serviceMonitor" }}
{{- $monitor := get $.root.Values.monitoring $key }}
{{- if and $public.apiKeys.existingSecret $monitor.enabled (not $monitor.apiKeySecret) }}
{{- include "pilotfish.problem" (dict "checks" $ "text" (printf "the API asks for keys, /metrics included: set monitoring.%s.apiKeySecret" $key)) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "pilotfish.checkRest" -}}
{{- $values := .root.Values }}
{{- range $type := list "existingClaim" "hostPath" }}
{{- if and (eq $values.modelCache.type $type) (not (get $values.modelCache $type)) }}
{{- include "pilotfish.problem" (dict "checks" $ "text" (printf "modelCache.type is %s: set modelCache.%s" $type $type)) }}
{{- end }}
{{- end }}
{{- if and $values.ingress.enabled (not $values.ingress.host) }}
{{- include "pilotfish.problem" (dict "checks" . "text" "ingress.enabled needs ingress.host") }}
{{- end }}
{{- range $key, $needed := dict "grpcRoute" "parentRefs" "httpRoute" "parentRefs" "inferencePool" "endpointPicker" }}
{{- $settings := get $values $key }}
{{- if and $settings.enabled (not (get $settings $needed)) }}
{{- include "pilotfish.problem" (dict "checks" $ "text" (printf "%s.enabled needs %s.%s" $key $key $needed)) }}
{{- end }}
{{- end }}
{{- if and $values.inferencePool.enabled (ne (include "pilotfish.metricsPrefix" .root) "vllm:") }}
{{- include "pilotfish.problem" (dict "checks" . "text" "inferencePool.enabled needs config.telemetry.metrics_prefix vllm:, by which its endpoint picker knows metrics") }}
{{- end }}
{{- if and $values.monitoring.podMonitor.enabled $values.monitoring.serviceMonitor.enabled }}
{{- include "pilotfish.problem" (dict "checks" . "text" "monitoring.podMonitor and monitoring.serviceMonitor would both scrape every pod: enable one") }}
{{- end }}
{{- range $name := list "grpc" "http" "probes" "metrics" }}
{{- if and (eq $values.mode "rayservice") (eq (int (get $values.ports $name)) (int $values.ray.servePort)) }}
{{- include "pilotfish.problem" (dict "checks" $ "text" (printf "ray.servePort is %d, as is ports.%s: both are bound in one pod, so choose another" (int $values.ray.servePort) $name)) }}
{{- end }}
{{- end }}
{{- if and $values.ray.gcsFaultTolerance.enabled (not $values.ray.gcsFaultTolerance.redisAddress) }}
{{- include "pilotfish.problem" (dict "checks" . "text" "ray.gcsFaultTolerance.enabled needs ray.gcsFaultTolerance.redisAddress") }}
{{- end }}
{{- end }}
