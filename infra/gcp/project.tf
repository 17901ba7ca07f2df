resource "google_project_service" "used" {
  for_each = toset([
    "artifactregistry.googleapis.com",
    "billingbudgets.googleapis.com",
    "cloudscheduler.googleapis.com",
    "compute.googleapis.com",
    "iam.googleapis.com",
    "monitoring.googleapis.com",
    "pubsub.googleapis.com",
    "run.googleapis.com",
    "secretmanager.googleapis.com",
    "servicenetworking.googleapis.com",
    "sqladmin.googleapis.com",
  ])

  service            = each.key
  disable_on_destroy = false # other things in the project may use it
}

locals {
  registry = "${var.region}-docker.pkg.dev/${var.project}/${google_artifact_registry_repository.images.repository_id}"
}

resource "google_artifact_registry_repository" "images" {
  repository_id = "fernlabour"
  location      = var.region
  format        = "DOCKER"
  description   = "The images of the services."

  docker_config {
    immutable_tags = true # a release is one image for ever
  }

  depends_on = [google_project_service.used]
}

# The databases have private addresses only. Processes reach them through this network and everything else directly.

resource "google_compute_network" "private" {
  name                    = "fernlabour"
  auto_create_subnetworks = false

  depends_on = [google_project_service.used]
}

resource "google_compute_subnetwork" "processes" {
  name                     = "fernlabour-processes"
  network                  = google_compute_network.private.id
  region                   = var.region
  ip_cidr_range            = "10.10.0.0/22"
  private_ip_google_access = true
}

resource "google_compute_global_address" "databases" {
  name          = "fernlabour-databases"
  network       = google_compute_network.private.id
  purpose       = "VPC_PEERING"
  address_type  = "INTERNAL"
  address       = "10.20.0.0"
  prefix_length = 20
}

resource "google_service_networking_connection" "databases" {
  network                 = google_compute_network.private.id
  service                 = "servicenetworking.googleapis.com"
  reserved_peering_ranges = [google_compute_global_address.databases.name]
}
