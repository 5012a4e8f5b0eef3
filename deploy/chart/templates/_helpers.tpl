{{/* The namespace. The daemon's Lease is Lifecycle Manager's own, which is in kcp-system. */}}
{{- define "tidegate.namespace" -}}
{{- if ne .Release.Namespace "kcp-system" -}}
{{- fail "install this chart in the namespace kcp-system: the Lease that Tidegate shares with Lifecycle Manager is there" -}}
{{- end -}}
{{- .Release.Namespace -}}
{{- end -}}

{{/* The ServiceAccount as the only subject of a binding. */}}
{{- define "tidegate.subjects" -}}
subjects:
- kind: ServiceAccount
  name: tidegate
  namespace: {{ include "tidegate.namespace" . }}
{{- end -}}

{{/* Whether the pod only compares: not empty if so. It has no rights for anything else. */}}
{{- define "tidegate.observe" -}}
{{- if .Values.observe -}}
{{- if ne .Values.events.mode "none" -}}
{{- fail "observe: an observer receives no events: set events.mode to none, and name the agent's image in extraArgs (--skr-watcher-image-tag)" -}}
{{- end -}}
{{- if .Values.kcpLandscapes.enabled -}}
{{- fail "observe: an observer leaves kcp landscapes alone: set kcpLandscapes.enabled to false" -}}
{{- end -}}
true
{{- end -}}
{{- end -}}

{{/* Refuses an argument that the objects of the chart would not follow. */}}
{{- define "tidegate.extraArg" -}}
{{- $name := splitList "=" . | first -}}
{{- if eq $name "--metrics-address" -}}
{{- fail "extraArgs: the Service and the annotations name port 8080 of the metrics: remove --metrics-address" -}}
{{- end -}}
{{- if eq $name "--observe" -}}
{{- fail "extraArgs: an observer needs no rights to write: set observe to true instead of --observe" -}}
{{- end -}}
{{- end -}}

{{/* The image of the daemon, by digest if there is one. */}}
{{- define "tidegate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The arguments that name the agent's image. */}}
{{- define "tidegate.agent" -}}
- {{ printf "--skr-watcher-image-registry=%s" .Values.agent.image.registry | quote }}
- {{ printf "--skr-watcher-image-name=%s" .Values.agent.image.name | quote }}
- {{ printf "--skr-watcher-image-tag=%s" (.Values.agent.image.tag | default .Chart.AppVersion) | quote }}
{{- end -}}

{{/* The name of the pod's PriorityClass, or nothing. */}}
{{- define "tidegate.priorityClass" -}}
{{- if .Values.priorityClass.name -}}
{{ .Values.priorityClass.name }}
{{- else if .Values.priorityClass.create -}}
tidegate
{{- end -}}
{{- end -}}
