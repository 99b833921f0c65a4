{{- /* Parts of pods that both modes share. Arguments: dict "root" $ "pool" NAME. */ -}}

{{- define "pilotfish.podLabels" -}}
{{- $pool := get .root.Values.pools .pool }}
{{- include "pilotfish.labels" .root }}
app.kubernetes.io/component: {{ .pool }}
{{- with $pool.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "pilotfish.podAnnotations" -}}
{{- with merge (dict) (get .root.Values.pools .pool).podAnnotations .root.Values.commonAnnotations }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{- /* dict "root" $ "settings" POOL: of a pool or of Ray's head. */ -}}
{{- define "pilotfish.scheduling" -}}
{{- $labels := dict }}
{{- range $name, $value := .settings.nodeSelector }}
{{- /* A null takes away a label of an earlier file. */ -}}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $labels $name $value }}{{ end }}
{{- end }}
{{- with $labels }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .settings.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .settings.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .settings.topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .settings.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- define "pilotfish.podSecurity" -}}
serviceAccountName: {{ include "pilotfish.serviceAccount" . }}
enableServiceLinks: false
securityContext: {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with concat (default list (dig "imagePullSecrets" list .Values.global)) .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* What requests under way may take when a pod ends. */ -}}
{{- define "pilotfish.drainSeconds" -}}
{{- dig "deployment" "orchestrator" "drain_s" 30 .Values.config | float64 | ceil | int }}
{{- end }}

{{- /* Until a pod is killed, with 15 s for engines to close: dict "root" $ "sleep" SECONDS before SIGTERM. */ -}}
{{- define "pilotfish.stopSeconds" -}}
{{- add .sleep (include "pilotfish.drainSeconds" .root) 15 }}
{{- end }}

{{- /* dict "root" $ "sleep" SECONDS before SIGTERM. Ray ends its processes as soon as that comes: there the requests under
way have their time before. */ -}}
{{- define "pilotfish.preStop" -}}
{{- $sleep := add .sleep (ternary (include "pilotfish.drainSeconds" .root | int) 0 (eq .root.Values.mode "rayservice")) }}
{{- if gt $sleep 0 }}
lifecycle: {preStop: {exec: {command: [sleep, {{ $sleep | quote }}]}}}
{{- end }}
{{- end }}

{{- define "pilotfish.podSpec" -}}
{{- $pool := get .root.Values.pools .pool }}
{{- include "pilotfish.podSecurity" .root }}
automountServiceAccountToken: {{ .root.Values.serviceAccount.automountToken }}
terminationGracePeriodSeconds: {{ include "pilotfish.stopSeconds" (dict "root" .root "sleep" $pool.preStopSleepSeconds) }}
{{- with $pool.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with include "pilotfish.scheduling" (dict "settings" $pool) }}
{{ . | trim }}
{{- end }}
{{- with $pool.initContainers }}
initContainers: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "pilotfish.resources" -}}
{{- $pool := get .root.Values.pools .pool }}
{{- $resources := deepCopy $pool.resources }}
{{- if gt (int $pool.gpus) 0 }}
{{- $gpus := dict .root.Values.gpuResourceName (toString $pool.gpus) }}
{{- $_ := set $resources "limits" (merge $gpus (default dict $resources.limits)) }}
{{- end }}
{{- toYaml $resources }}
{{- end }}

{{- define "pilotfish.env" -}}
- {name: HOME, value: /tmp}
- {name: PILOTFISH_CACHE, value: /models}
- {name: HF_HOME, value: /models/huggingface}
{{- with .Values.huggingface }}
{{- if .offline }}
- {name: HF_HUB_OFFLINE, value: "1"}
{{- end }}
{{- with .endpoint }}
- {name: HF_ENDPOINT, value: {{ . | quote }}}
{{- end }}
{{- if .existingSecret }}
- name: HF_TOKEN
  valueFrom: {secretKeyRef: {name: {{ .existingSecret }}, key: {{ .key }}}}
{{- end }}
{{- end }}
{{- if .Values.otel.enabled }}
{{- $attributes := list (printf "service.namespace=%s" .Release.Namespace) (printf "service.version=%s" .Chart.AppVersion) }}
{{- range $name, $value := .Values.otel.resourceAttributes }}
{{- $attributes = append $attributes (printf "%s=%s" $name (toString $value)) }}
{{- end }}
- {name: OTEL_RESOURCE_ATTRIBUTES, value: {{ join "," $attributes | quote }}}
{{- with .Values.otel.headersSecret }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom: {secretKeyRef: {name: {{ . }}, key: {{ $.Values.otel.headersKey }}}}
{{- end }}
{{- end }}
{{- end }}

{{- /* dict "root" $ "shmSize" SIZE "public" whether the public API's secrets are needed. */ -}}
{{- define "pilotfish.volumes" -}}
- {name: tmp, emptyDir: {}}
- {name: dshm, emptyDir: {medium: Memory, sizeLimit: {{ .shmSize }}}}
- name: models
{{- with .root.Values.modelCache }}
{{- if eq .type "emptyDir" }}
  emptyDir: {sizeLimit: {{ .sizeLimit }}}
{{- else if eq .type "hostPath" }}
  hostPath: {path: {{ .hostPath | quote }}, type: DirectoryOrCreate}
{{- else }}
  persistentVolumeClaim: {claimName: {{ if eq .type "existingClaim" }}{{ .existingClaim }}{{ else }}{{ include "pilotfish.fullname" $.root }}-models{{ end }}}
{{- end }}
{{- end }}
{{- with .root.Values.security }}
{{- if .internal.token.existingSecret }}
- name: links
  secret: {secretName: {{ .internal.token.existingSecret }}, items: [{key: {{ .internal.token.key | quote }}, path: token}]}
{{- end }}
{{- if .internal.tls.enabled }}
- {name: links-tls, secret: {secretName: {{ include "pilotfish.internalTlsSecret" $.root }}}}
{{- end }}
{{- if and $.public .public.tls.enabled }}
- {name: public-tls, secret: {secretName: {{ include "pilotfish.publicTlsSecret" $.root }}}}
{{- end }}
{{- if and $.public .public.apiKeys.existingSecret }}
- name: api-keys
  secret: {secretName: {{ .public.apiKeys.existingSecret }}, items: [{key: {{ .public.apiKeys.key | quote }}, path: api-keys.yaml}]}
{{- end }}
{{- end }}
{{- end }}

{{- /* Folders, not single files: Kubernetes renews those when a Secret changes, and Pilotfish reads them again. */ -}}
{{- define "pilotfish.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: dshm, mountPath: /dev/shm}
- {name: models, mountPath: /models}
{{- with .root.Values.security }}
{{- if .internal.token.existingSecret }}
- {name: links, mountPath: /etc/pilotfish/links, readOnly: true}
{{- end }}
{{- if .internal.tls.enabled }}
- {name: links-tls, mountPath: /etc/pilotfish/links-tls, readOnly: true}
{{- end }}
{{- if and $.public .public.tls.enabled }}
- {name: public-tls, mountPath: /etc/pilotfish/public-tls, readOnly: true}
{{- end }}
{{- if and $.public .public.apiKeys.existingSecret }}
- {name: api-keys, mountPath: /etc/pilotfish/api-keys, readOnly: true}
{{- end }}
{{- end }}
{{- end }}
