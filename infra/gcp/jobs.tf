# Jobs: the roles of the databases, migrations, a drain, and the audit. The command of a job tells its proxy to stop when it has ended,
# and its exit code is that of the command.

locals {
  then_stop_the_proxy = "code=$?; python -c 'import urllib.request as r; r.urlopen(\"http://127.0.0.1:9091/quitquitquit\", data=b\"\")'; exit $code"
}

resource "google_cloud_run_v2_job" "service" {
  for_each = { for name, job in local.jobs : name => job if var.stage != "prepared" }

  name                = "fern-${each.key}"
  location            = var.region
  deletion_protection = false

  template {
    template {
      service_account = google_service_account.process[each.key].email
      max_retries     = 1
      timeout         = "3600s"

      vpc_access {
        egress = "PRIVATE_RANGES_ONLY"
        network_interfaces {
          network    = google_compute_network.private.id
          subnetwork = google_compute_subnetwork.processes.id
          tags       = [local.network_tag]
        }
      }

      containers {
        name       = "process"
        image      = local.job_images[each.value.service]
        command    = ["sh", "-c", "${each.value.command}; ${local.then_stop_the_proxy}"]
        depends_on = ["proxy"]

        resources {
          limits = { cpu = "1", memory = "512Mi" }
        }

        dynamic "env" {
          for_each = local.environments[each.key]
          content {
            name  = env.key
            value = env.value
          }
        }

        dynamic "env" {
          for_each = lookup(local.secrets, each.key, {})
          content {
            name = env.key
            value_source {
              secret_key_ref {
                secret  = google_secret_manager_secret.setting[env.value].secret_id
                version = "latest"
              }
            }
          }
        }
      }

      containers {
        name  = "proxy"
        image = local.proxy
        args  = concat(local.proxy_arguments, ["--quitquitquit", "--exit-zero-on-sigterm", local.connection_names[each.value.service]])

        startup_probe {
          period_seconds    = 1
          failure_threshold = 60
          http_get {
            path = "/startup"
            port = 9090
          }
        }
      }
    }
  }

  depends_on = [google_secret_manager_secret_iam_member.process]
}

resource "google_cloud_run_v2_job" "roles" {
  for_each = var.stage != "prepared" ? local.services : toset([])

  name                = "fern-${each.key}-roles"
  location            = var.region
  deletion_protection = false

  template {
    template {
      service_account = google_service_account.roles.email
      max_retries     = 0
      timeout         = "300s"

      vpc_access {
        egress = "PRIVATE_RANGES_ONLY"
        network_interfaces {
          network    = google_compute_network.private.id
          subnetwork = google_compute_subnetwork.processes.id
          tags       = [local.network_tag]
        }
      }

      containers {
        name       = "psql"
        image      = local.psql
        depends_on = ["proxy"]
        command = ["bash", "-c", <<-EOT
          psql -h 127.0.0.1 -U postgres -d ${each.key} -v ON_ERROR_STOP=1 -v service=${each.key} -v owners="$OWNERS" -v members="$MEMBERS" -v readers="$READERS" <<< "$SCRIPT"
          code=$?
          exec 3<>/dev/tcp/127.0.0.1/9091 && printf 'POST /quitquitquit HTTP/1.0\r\n\r\n' >&3
          exit $code
        EOT
        ]

        resources {
          limits = { cpu = "1", memory = "512Mi" }
        }

        env {
          name  = "SCRIPT"
          value = file("${path.module}/databases.sql")
        }

        env {
          name  = "MEMBERS"
          value = join(",", [for name, process in local.processes : google_sql_user.process[name].name if process.service == each.key && name != "${each.key}-migrations"])
        }

        env {
          name  = "OWNERS"
          value = google_sql_user.process["${each.key}-migrations"].name
        }

        env {
          name  = "READERS"
          value = join(",", [google_sql_user.audit[each.key].name, google_sql_user.metrics[each.key].name])
        }

        env {
          name = "PGPASSWORD"
          value_source {
            secret_key_ref {
              secret  = google_secret_manager_secret.administrator.secret_id
              version = "latest"
            }
          }
        }
      }

      containers {
        name  = "proxy"
        image = local.proxy
        args  = ["--private-ip", "--structured-logs", "--health-check", "--http-address=0.0.0.0", "--http-port=9090", "--quitquitquit", "--exit-zero-on-sigterm", local.connection_names[each.key]]

        startup_probe {
          period_seconds    = 1
          failure_threshold = 60
          http_get {
            path = "/startup"
            port = 9090
          }
        }
      }
    }
  }

  depends_on = [google_secret_manager_secret_version.administrator, google_secret_manager_secret_iam_member.roles]
}

resource "google_cloud_run_v2_job" "audit" {
  count = var.stage != "prepared" ? 1 : 0

  name                = "fern-audit"
  location            = var.region
  deletion_protection = false

  template {
    template {
      service_account = google_service_account.audit.email
      max_retries     = 0 # its exit code is the result
      timeout         = "1800s"

      vpc_access {
        egress = "PRIVATE_RANGES_ONLY"
        network_interfaces {
          network    = google_compute_network.private.id
          subnetwork = google_compute_subnetwork.processes.id
          tags       = [local.network_tag]
        }
      }

      containers {
        name       = "process"
        image      = local.job_images["tools"]
        command    = ["sh", "-c", "python -m fern audit --overdue 1800; ${local.then_stop_the_proxy}"]
        depends_on = ["proxy"]

        resources {
          limits = { cpu = "1", memory = "1Gi" }
        }

        env {
          name  = "PUBSUB_PROJECT_ID"
          value = var.project
        }

        dynamic "env" {
          for_each = { labour = 5432, notification = 5433 }
          content {
            name  = "${upper(env.key)}_DATABASE_URL"
            value = "postgresql+asyncpg://${urlencode(google_sql_user.audit[env.key].name)}@127.0.0.1:${env.value}/${env.key}"
          }
        }
      }

      containers {
        name  = "proxy"
        image = local.proxy
        args = concat(local.proxy_arguments, [
          "--quitquitquit", "--exit-zero-on-sigterm",
          "${local.connection_names["labour"]}?port=5432",
          "${local.connection_names["notification"]}?port=5433",
        ])

        startup_probe {
          period_seconds    = 1
          failure_threshold = 60
          http_get {
            path = "/startup"
            port = 9090
          }
        }
      }
    }
  }
}

resource "google_cloud_run_v2_job_iam_member" "scheduler" {
  count = var.stage != "prepared" ? 1 : 0

  name     = google_cloud_run_v2_job.audit[0].name
  location = var.region
  role     = "roles/run.invoker"
  member   = google_service_account.scheduler.member
}

resource "google_cloud_scheduler_job" "audit" {
  count = var.stage != "prepared" ? 1 : 0

  name      = "fern-audit"
  region    = var.region
  schedule  = var.audit_schedule
  time_zone = "Etc/UTC"

  http_target {
    http_method = "POST"
    uri         = "https://run.googleapis.com/v2/projects/${var.project}/locations/${var.region}/jobs/${google_cloud_run_v2_job.audit[0].name}:run"

    oauth_token {
      service_account_email = google_service_account.scheduler.email
    }
  }
}
