"""Schemas of requests and answers: for the OpenAPI document and the dashboard's types."""
