// Package forecast predicts what a change of resources does to picks: the share and the requests per
// second of each endpoint before and after it, connections, request hashes that get another endpoint,
// and limits that would be reached.
//
// The shares are not computed from the resources. The config before the change, and then the config
// after it, are given to a balancer tree of the real policies, see rehearsal, whose endpoints are
// reachable if those of the live tree are. A new endpoint is assumed to be reachable. What the rehearsed
// tree says of itself is the prediction, so a prediction takes into account all that the policies do.
//
// What depends on how requests end cannot be predicted: the choices of policies with feedback
// (least_request, weighted_round_robin), outlier detection, and the circuit breaker. A forecast has the
// shares without that feedback, and says so.
package forecast
