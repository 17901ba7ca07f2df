# An account for each process, with what it needs and nothing else.

resource "google_service_account" "process" {
  for_each = local.processes

  account_id   = "fern-${each.key}"
  display_name = each.key

  depends_on = [google_project_service.used]
}

resource "google_service_account" "metrics" {
  for_each = local.services

  account_id   = "fern-${each.key}-metrics"
  display_name = "Reads the numbers to watch from the ${each.key} database (infra/kubernetes)"

  depends_on = [google_project_service.used]
}

resource "google_service_account" "audit" {
  account_id   = "fern-audit"
  display_name = "Reads both databases and the dead letters"

  depends_on = [google_project_service.used]
}

resource "google_service_account" "scheduler" {
  account_id   = "fern-scheduler"
  display_name = "Starts the audit"

  depends_on = [google_project_service.used]
}

locals {
  accounts_with_database = merge(google_service_account.process, { for name, one in google_service_account.metrics : "${name}-metrics" => one }, { audit = google_service_account.audit })
}

# client: the proxy may ask for a certificate. instanceUser: the account may log in.

resource "google_project_iam_member" "database_client" {
  for_each = local.accounts_with_database

  project = var.project
  role    = "roles/cloudsql.client"
  member  = each.value.member
}

resource "google_project_iam_member" "database_user" {
  for_each = local.accounts_with_database

  project = var.project
  role    = "roles/cloudsql.instanceUser"
  member  = each.value.member
}

resource "google_project_iam_member" "metrics_writer" {
  for_each = merge(local.apis, local.workers)

  project = var.project
  role    = "roles/monitoring.metricWriter"
  member  = google_service_account.process[each.key].member
}

# Before it starts, a worker checks that its topic exists and how its subscriptions are delivered.

resource "google_project_iam_member" "bus_viewer" {
  for_each = merge({ for name in keys(local.workers) : name => google_service_account.process[name] if name != "notification-dispatcher" }, { notification-drain = google_service_account.process["notification-drain"], audit = google_service_account.audit })

  project = var.project
  role    = "roles/pubsub.viewer"
  member  = each.value.member
}

# The secrets exist without a value; docs/deploy-gcp.md adds the values. They are never in the state.

resource "google_secret_manager_secret" "setting" {
  for_each = toset(flatten([for variables in local.secrets : values(variables)]))

  secret_id = each.key

  replication {
    user_managed {
      replicas {
        location = var.region
      }
    }
  }

  depends_on = [google_project_service.used]
}

locals {
  readable = {
    for pair in flatten([
      for name, process in local.processes : [for secret in values(lookup(local.secrets, name, {})) : { process = name, secret = secret }]
    ]) : "${pair.secret} ${pair.process}" => pair
  }
}

resource "google_secret_manager_secret_iam_member" "process" {
  for_each = local.readable

  secret_id = google_secret_manager_secret.setting[each.value.secret].id
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.process[each.value.process].member
}
