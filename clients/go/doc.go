// Package lbdclient is a client of lbd, a load balancing daemon: it sends HTTP requests to the endpoints that lbd picks,
// with weights, failover, drops, circuit breaking and outlier detection as gRPC's xDS client has them.
//
// A host CLUSTER.lbd names a cluster. Requests to other hosts are not touched:
//
//	client, err := lbdclient.New(lbdclient.Config{})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	orders := &http.Client{Transport: &lbdclient.Transport{Client: client}}
//	response, err := orders.Get("http://orders.lbd/items/7")
//
// Make one [Client] for the process, and use it in all goroutines. Programs that do not speak HTTP to their upstreams use
// [Client.Pick]. Package lbdgrpc, a separate module, is for gRPC.
//
// In [ModeBatch], a request takes the next element of a list of picks that is in memory, and counts. A goroutine for each
// cluster keeps the list up to date, and one more tells lbd every few seconds how the requests ended.
package lbdclient
