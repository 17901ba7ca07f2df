terraform {
  required_version = ">= 1.11" # write-only arguments: no password in the state

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 8.0"
    }
    random = {
      source  = "hashicorp/random"
      version = "~> 3.7"
    }
  }

  backend "gcs" {} # terraform init -backend-config=bucket=…
}

provider "google" {
  project               = var.project
  region                = var.region
  user_project_override = true # budgets are billed to a project
  billing_project       = var.project
}

data "google_project" "this" {
  project_id = var.project
}
