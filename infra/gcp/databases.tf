# A server for each service: neither can reach the other's data, overload it, or be restored with it.

resource "google_sql_database_instance" "service" {
  for_each = local.services

  name                = "fernlabour-${each.key}"
  database_version    = "POSTGRES_18"
  region              = var.region
  deletion_protection = var.deletion_protection

  settings {
    edition           = "ENTERPRISE"
    tier              = var.database_tier
    availability_type = var.database_available
    disk_type         = "PD_SSD"
    disk_autoresize   = true

    ip_configuration {
      ipv4_enabled    = false
      private_network = google_compute_network.private.id
      ssl_mode        = "TRUSTED_CLIENT_CERTIFICATE_REQUIRED"
    }

    backup_configuration {
      enabled                        = true
      point_in_time_recovery_enabled = true
      transaction_log_retention_days = 7

      backup_retention_settings {
        retained_backups = 30 # as far back as a replay may go
      }
    }

    database_flags {
      name  = "cloudsql.iam_authentication"
      value = "on"
    }

    database_flags {
      name  = "max_connections"
      value = "400" # docs/operations.md adds up what the processes need
    }

    database_flags {
      name  = "log_lock_waits"
      value = "on"
    }

    database_flags {
      name  = "log_checkpoints"
      value = "on"
    }

    database_flags {
      name  = "log_connections"
      value = "on"
    }

    database_flags {
      name  = "log_disconnections"
      value = "on"
    }

    insights_config {
      query_insights_enabled = true
    }

    maintenance_window {
      day          = 2
      hour         = 4
      update_track = "stable"
    }
  }

  depends_on = [google_service_networking_connection.databases]
}

# ABANDON: PostgreSQL deletes no role with rights and no database in use, so both go with their server.

resource "google_sql_database" "service" {
  for_each = local.services

  name            = each.key
  instance        = google_sql_database_instance.service[each.key].name
  deletion_policy = "ABANDON"
}

resource "google_sql_user" "process" {
  for_each = local.processes

  instance = google_sql_database_instance.service[each.value.service].name
  name     = trimsuffix(google_service_account.process[each.key].email, ".gserviceaccount.com")
  type     = "CLOUD_IAM_SERVICE_ACCOUNT"

  deletion_policy = "ABANDON"
}

resource "google_sql_user" "metrics" {
  for_each = local.services

  instance = google_sql_database_instance.service[each.key].name
  name     = trimsuffix(google_service_account.metrics[each.key].email, ".gserviceaccount.com")
  type     = "CLOUD_IAM_SERVICE_ACCOUNT"

  deletion_policy = "ABANDON"
}

resource "google_sql_user" "audit" {
  for_each = local.services

  instance = google_sql_database_instance.service[each.key].name
  name     = trimsuffix(google_service_account.audit.email, ".gserviceaccount.com")
  type     = "CLOUD_IAM_SERVICE_ACCOUNT"

  deletion_policy = "ABANDON"
}

# The only password: that of the administrator, for the job that makes the roles. It goes into Secret Manager and not into the state.

ephemeral "random_password" "administrator" {
  length  = 40
  special = false
}

resource "google_secret_manager_secret" "administrator" {
  secret_id = "database-administrator"

  replication {
    user_managed {
      replicas {
        location = var.region
      }
    }
  }

  depends_on = [google_project_service.used]
}

resource "google_secret_manager_secret_version" "administrator" {
  secret                 = google_secret_manager_secret.administrator.id
  secret_data_wo         = ephemeral.random_password.administrator.result
  secret_data_wo_version = 1 # increase it to change the password
}

# The random value is another one in each run. What was written is read back, so a run that failed in between can be repeated.

ephemeral "google_secret_manager_secret_version" "administrator" {
  secret  = google_secret_manager_secret.administrator.secret_id
  version = google_secret_manager_secret_version.administrator.version
}

resource "google_sql_user" "administrator" {
  for_each = local.services

  instance            = google_sql_database_instance.service[each.key].name
  name                = "postgres"
  password_wo         = ephemeral.google_secret_manager_secret_version.administrator.secret_data
  password_wo_version = google_secret_manager_secret_version.administrator.secret_data_wo_version
  deletion_policy     = "ABANDON"
}

resource "google_service_account" "roles" {
  account_id   = "fern-roles"
  display_name = "Makes the roles of the databases"

  depends_on = [google_project_service.used]
}

resource "google_project_iam_member" "roles" {
  project = var.project
  role    = "roles/cloudsql.client"
  member  = google_service_account.roles.member
}

resource "google_secret_manager_secret_iam_member" "roles" {
  secret_id = google_secret_manager_secret.administrator.id
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.roles.member
}
