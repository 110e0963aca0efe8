package service

// Reconnect connects to the endpoints of a cluster that wait for their next attempt to connect, and
// returns how many these are. It fails with UnknownCluster.
func (s *Service) Reconnect(cluster string) (endpoints int, err error) {
	if s.dialer != nil {
		endpoints = s.dialer.Reconnect(cluster)
	}
	if endpoints == 0 {
		_, err = s.targets.Find(cluster, "")
	}
	return endpoints, err
}
