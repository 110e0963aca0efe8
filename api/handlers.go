package api

import "github.com/lbd-dev/lbd/service"

// handlers serve what the service knows. A handler of one route has the name of its operation in
// openapi.yaml.
type handlers struct {
	service *service.Service
	limits  Limits
	peers   *Peers // nil for none
}
