{{/* Names of all objects begin with it. Short enough for an operator and '-metrics' behind it. */}}
{{- define "orchestrator.fullname" -}}
{{- $name := ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* The name of the one ConfigMap: here only, so that what is rendered and what is mounted agree (R17). */}}
{{- define "orchestrator.configName" -}}
{{ include "orchestrator.fullname" . }}-config
{{- end }}

{{/* The configuration file. The list of namespaces is the same that the Roles are made from. */}}
{{- define "orchestrator.config" -}}
{{- if hasKey .Values.config "watchNamespaces" -}}
{{- fail "'config.watchNamespaces' would not agree with the rights that the chart gives: set 'watchNamespaces' beside 'config'" -}}
{{- end -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := set $config "watchNamespaces" .Values.watchNamespaces -}}
{{ toYaml $config }}
{{- end }}

{{- define "orchestrator.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Names of the enabled operators, as a YAML list. */}}
{{- define "orchestrator.operators" -}}
{{- $enabled := list -}}
{{- range $operator, $settings := .Values.operators -}}
{{- if $settings.enabled -}}{{- $enabled = append $enabled $operator -}}{{- end -}}
{{- end -}}
{{- if not $enabled -}}
{{- $known := list -}}
{{- range keys .Values.operators | sortAlpha -}}{{- $known = append $known (printf "'operators.%s.enabled'" .) -}}{{- end -}}
{{- fail (printf "no operator is enabled: set %s" (join " or " $known)) -}}
{{- end -}}
{{- if and .Values.watchNamespaces (has "tenants" $enabled) -}}
{{- fail "Tenants belong to the whole cluster, and make namespaces of their own: with 'operators.tenants.enabled', 'watchNamespaces' must be empty" -}}
{{- end -}}
{{- if and (has "tenants" $enabled) (not .Values.admissionPolicies.enabled) -}}
{{- fail "'operators.tenants.enabled' needs 'admissionPolicies.enabled=true': without the policies, nothing keeps the operator of Tenants out of other namespaces" -}}
{{- end -}}
{{- if and (has "apps" $enabled) (not .Values.admissionPolicies.enabled) -}}
{{- fail "'operators.apps.enabled' needs 'admissionPolicies.enabled=true': without the policies, the status of a ManagedApp shows applications that its author may not see" -}}
{{- end -}}
{{ toYaml $enabled }}
{{- end }}

{{/* Rules of an operator, without those that its configuration makes unnecessary, as a YAML list. */}}
{{- define "orchestrator.namespacedRules" -}}
{{- $rules := .rules -}}
{{- if and (eq .operator "apps") (not (dig "apps" "helm" "readReleaseSecrets" true .root.Values.config)) -}}
{{- $kept := list -}}
{{- range $rules -}}{{- if not (has "secrets" .resources) -}}{{- $kept = append $kept . -}}{{- end -}}{{- end -}}
{{- $rules = $kept -}}
{{- end -}}
{{ toYaml $rules }}
{{- end }}

{{/* Namespaces where the operator of runs creates nothing, as a YAML list. With its own among them, unless runs live there. */}}
{{- define "orchestrator.protectedNamespaces" -}}
{{- $watched := .Values.watchNamespaces -}}
{{- $protected := .Values.admissionPolicies.protectedNamespaces | default list -}}
{{- range $protected -}}
{{- if has . $watched -}}
{{- fail (printf "namespace '%s' is both in 'watchNamespaces' and in 'admissionPolicies.protectedNamespaces': runs there could not start; remove it from one of them" .) -}}
{{- end -}}
{{- end -}}
{{- if not (has .Release.Namespace (concat $watched $protected)) -}}
{{- $protected = append $protected .Release.Namespace -}}
{{- end -}}
{{ toYaml $protected }}
{{- end }}

{{/* A list of texts as an expression. The schema admits none with a quote. */}}
{{- define "orchestrator.celList" -}}
[{{ range $index, $text := . }}{{ if $index }}, {{ end }}'{{ $text }}'{{ end }}]
{{- end }}

{{/* A generated file, or a failure: rights that could not be read must not become no rights. */}}
{{- define "orchestrator.generated" -}}
{{- $content := .root.Files.Get .path -}}
{{- if not $content -}}{{- fail (printf "the chart lacks '%s': run 'cargo xtask generate'" .path) -}}{{- end -}}
{{- $error := get (fromYaml $content) "Error" -}}
{{- if $error -}}{{- fail (printf "'%s' is unreadable: %s" .path $error) -}}{{- end -}}
{{ $content }}
{{- end }}

{{/* Labels of everything; with 'operator', of what belongs to one. */}}
{{- define "orchestrator.labels" -}}
{{ include "orchestrator.selector" . }}
app.kubernetes.io/part-of: orchestrator
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The labels that do not change with a version. */}}
{{- define "orchestrator.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .operator }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}
