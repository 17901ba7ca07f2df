variable "project" {
  description = "The id of an existing project with billing."
  type        = string
}

variable "region" {
  description = "The region in which everything runs."
  type        = string
  default     = "europe-west1"
}

variable "stage" {
  description = "prepared: everything that needs no image. jobs: also the jobs. running: also services and worker pools."
  type        = string
  default     = "prepared"

  validation {
    condition     = contains(["prepared", "jobs", "running"], var.stage)
    error_message = "stage must be prepared, jobs or running."
  }
}

# Without a default: an apply that does not name the release would go back to an older one.
variable "release" {
  description = "The tag of the images of services and worker pools. It belongs in terraform.tfvars, and every upgrade changes it there."
  type        = string
}

variable "release_of_jobs" {
  description = "The tag of the images of the jobs, during an upgrade: migrations come first."
  type        = string
  default     = null
}

variable "release_of_consumers" {
  description = "The tag of the images of what reads events, during an upgrade: it comes before what records them."
  type        = string
  default     = null
}

variable "collector" {
  description = "The image of Google's collector for Prometheus metrics on Cloud Run, with a tag that supports worker pools."
  type        = string
}

variable "connection_names" {
  description = "The connection name of a service's server, if it is not the one of databases.tf: after a restore, that of the clone."
  type        = map(string)
  default     = {}
}

variable "stopped" {
  description = "The services of which no process runs: during a restore, [\"notification\"]."
  type        = list(string)
  default     = []
}

variable "jwks_url" {
  description = "The address of the keys that verify callers' tokens."
  type        = string
}

variable "token_issuer" {
  description = "The issuer of callers' tokens."
  type        = string
}

variable "database_tier" {
  description = "The machine of each database."
  type        = string
  default     = "db-custom-1-3840"
}

variable "database_available" {
  description = "REGIONAL keeps a synchronous standby in a second zone, which the promises need; ZONAL costs half."
  type        = string
  default     = "REGIONAL"
}

variable "deletion_protection" {
  description = "Whether Terraform refuses to delete the databases. Set it to false before `terraform destroy`."
  type        = bool
  default     = true
}

variable "replicas" {
  description = "The number of instances of each worker, if not 1. `fern plan` says how many a load needs."
  type        = map(number)
  default     = {}
}

variable "operators" {
  description = "The people and groups that may reach the operators' listeners, such as user:grace@example.org or group:operators@example.org."
  type        = list(string)
  default     = []
}

variable "alert_email" {
  description = "The email address that receives alerts and messages about the budget."
  type        = string
}

variable "billing_account" {
  description = "The id of the billing account of the project."
  type        = string
}

variable "monthly_budget" {
  description = "The budget of a month, in the currency of the billing account. A message is sent at half of it, at all of it, and when the forecast exceeds it."
  type        = number
  default     = 1000
}

variable "audit_schedule" {
  description = "When the audit runs. It reads whole tables."
  type        = string
  default     = "7 * * * *"
}

# Written by `fern deployment write` from infra/topology.toml and infra/observability/alerts.toml.

variable "topology" {
  description = "Topics and subscriptions."
  type = object({
    topics = list(string)
    subscriptions = map(object({
      topic             = string
      dead_letter_topic = string
      consumer          = string
      service           = string
      push              = bool
      exactly_once      = bool
      retention         = string
    }))
    ack_deadline_seconds  = number
    minimum_backoff       = string
    maximum_backoff       = string
    max_delivery_attempts = number
  })
}

variable "alerts" {
  description = "Alert policies by name."
  type = map(object({
    query    = string
    duration = string
    severity = string
    runbook  = string
    needs    = string
  }))
}
