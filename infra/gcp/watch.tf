resource "google_monitoring_notification_channel" "people" {
  display_name = "FernLabour operators"
  type         = "email"
  labels       = { email_address = var.alert_email }

  depends_on = [google_project_service.used]
}

# Uptime checks from outside, at the same address as clients. Ready means that the database answers.

resource "google_monitoring_uptime_check_config" "api" {
  for_each = { for name, api in google_cloud_run_v2_service.api : name => api if contains(keys(local.apis), name) }

  display_name = each.key
  period       = "60s"
  timeout      = "10s"

  http_check {
    path         = "/health/ready"
    port         = 443
    use_ssl      = true
    validate_ssl = true
  }

  monitored_resource {
    type   = "uptime_url"
    labels = { project_id = var.project, host = trimprefix(local.urls[each.key], "https://") }
  }
}

resource "google_monitoring_alert_policy" "unreachable" {
  for_each = google_monitoring_uptime_check_config.api

  display_name          = "${each.key} cannot be reached"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = [google_monitoring_notification_channel.people.id]

  conditions {
    display_name = "The uptime check fails in more than one region"

    condition_threshold {
      filter          = "metric.type=\"monitoring.googleapis.com/uptime_check/check_passed\" AND resource.type=\"uptime_url\" AND metric.labels.check_id=\"${each.value.uptime_check_id}\""
      comparison      = "COMPARISON_GT"
      threshold_value = 1
      duration        = "60s"

      aggregations {
        alignment_period     = "300s"
        per_series_aligner   = "ALIGN_NEXT_OLDER"
        cross_series_reducer = "REDUCE_COUNT_FALSE"
        group_by_fields      = ["resource.label.host"]
      }
    }
  }

  documentation {
    content = "docs/operations.md#the-database-the-bus-or-the-provider-is-unavailable"
  }
}

# The alerts of infra/observability/alerts.toml. Those that need our processes have no metrics while the processes run on Kubernetes, which has
# rules of its own for them.

resource "google_monitoring_alert_policy" "declared" {
  for_each = { for name, one in var.alerts : name => one if one.needs == "google" || var.stage == "running" }

  display_name          = each.key
  combiner              = "OR"
  severity              = upper(each.value.severity)
  notification_channels = [google_monitoring_notification_channel.people.id]

  conditions {
    display_name = each.key

    condition_prometheus_query_language {
      query                     = each.value.query
      duration                  = each.value.duration
      evaluation_interval       = "60s"
      disable_metric_validation = true # a metric exists from its first value on
    }
  }

  documentation {
    content = "docs/operations.md#${each.value.runbook}"
  }
}

resource "google_billing_budget" "monthly" {
  billing_account = var.billing_account
  display_name    = "FernLabour"

  budget_filter {
    projects = ["projects/${data.google_project.this.number}"]
  }

  amount {
    specified_amount {
      units = tostring(var.monthly_budget)
    }
  }

  dynamic "threshold_rules" {
    for_each = [0.5, 1.0]
    content {
      threshold_percent = threshold_rules.value
    }
  }

  threshold_rules {
    threshold_percent = 1.0
    spend_basis       = "FORECASTED_SPEND"
  }

  all_updates_rule {
    monitoring_notification_channels = [google_monitoring_notification_channel.people.id]
  }

  depends_on = [google_project_service.used]
}
