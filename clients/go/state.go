package lbdclient

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// state is lbd's answer about a cluster.
type state struct {
	Generation int64 `json:"generation"`
	Priorities []struct {
		InUse      bool `json:"in_use"`
		Localities []struct {
			Endpoints []struct {
				Address string `json:"address"`
				State   string `json:"state"`
			} `json:"endpoints"`
		} `json:"localities"`
	} `json:"priorities"`
}

// usable returns the addresses of the priority in use, without those that are unhealthy.
func (s *state) usable() []string {
	var addresses []string
	for _, p := range s.Priorities {
		if !p.InUse {
			continue
		}
		for _, l := range p.Localities {
			for _, e := range l.Endpoints {
				if e.Address != "" && e.State != "UNHEALTHY" {
					addresses = append(addresses, e.Address)
				}
			}
		}
	}
	return addresses
}

// state returns the state of a cluster, maybe in a target, after its generation has changed, or after wait. With
// generation 0 it does not wait.
func (c *Client) state(ctx context.Context, cluster, target string, generation int64, wait time.Duration, endpoints bool) (*state, error) {
	query := url.Values{"endpoints": {strconv.FormatBool(endpoints)}}
	if target != "" {
		query.Set("target", target)
	}
	timeout := callTimeout
	if generation != 0 {
		wait = min(wait, maxFollow)
		query.Set("index", strconv.FormatInt(generation, 10))
		query.Set("wait", milliseconds(wait))
		timeout = wait + waitGrace
	}
	s := new(state)
	err := c.api.do(ctx, call{
		method:  http.MethodGet,
		path:    "/v1/clusters/" + url.PathEscape(cluster),
		query:   query,
		cluster: cluster,
		timeout: timeout,
	}, s)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// FollowEndpoints calls update with the usable endpoints of the priority in use, first with the current ones, then
// after each change of the cluster. If lbd rejects a call or is unreachable, it calls update with an [*Error] instead,
// and tries again. It returns when ctx is done or the client is closed.
//
// It is for programs that keep connections open, such as gRPC clients: which endpoint a request goes to is decided by
// [Client.Pick].
func (c *Client) FollowEndpoints(ctx context.Context, cluster string, update func(addresses []string, err error)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	backoff, generation := firstBackoff, int64(0)
	for {
		began := now()
		s, err := c.state(ctx, cluster, "", generation, maxFollow, true)
		if ctx.Err() != nil {
			return
		}
		pause := followPause - (now() - began)
		switch {
		case err != nil:
			rejection := errorOf(cluster, err)
			pause = max(jitter(backoff), min(rejection.RetryAfter, maxRetryAfter))
			backoff = min(2*backoff, maxBackoff)
			generation = 0
			update(nil, rejection)
		case s.Generation != generation:
			backoff, generation = firstBackoff, s.Generation
			update(s.usable(), nil)
		default:
			backoff = firstBackoff
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}
