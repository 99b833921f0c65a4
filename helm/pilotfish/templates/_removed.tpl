{{- /* Values of earlier charts, and what they are called now. values.schema.json lets them through, so that this is what
people read. */ -}}
{{- define "pilotfish.removedValues" -}}
model: config.target.model (and config.draft.model)
proposer: config.draft.proposer
linkTokenSecret: security.internal.token.existingSecret
hfTokenSecret: huggingface.existingSecret
grpcPort: ports.grpc
target: pools.target
draft: pools.draft
orchestrator: pools.orchestrator
{{- end }}
