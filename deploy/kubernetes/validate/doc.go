// Package validate holds the manifests of deploy/kubernetes to the types of the Kubernetes API, without a cluster: its
// tests decode each document strictly and compare what the documents say of one another. It is a module of its
// own, so that novad does not depend on Kubernetes.
package validate
