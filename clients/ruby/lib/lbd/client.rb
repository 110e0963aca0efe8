# frozen_string_literal: true

require "securerandom"
require "socket"
require_relative "api"
require_relative "ask"
require_relative "call"
require_relative "cluster"
require_relative "hooks"
require_relative "net_http"
require_relative "processes"
require_relative "sender"
require_relative "upstreams"

module Lbd
  # Sends requests to hosts CLUSTER.lbd to the endpoints that lbd picks. Safe for threads and for fork: make one client
  # for the process.
  class Client
    MODES = %i[batch pick lease].freeze
    CLUSTERS_MAX = 1000

    # Bytes of the name of a cluster, and of what a request asks, at most. lbd permits 512, and 32 KiB with all that a
    # retry excludes: it says nothing that a client understands to what is much longer.
    NAME_MAX = 512
    QUERY_MAX = 24 << 10

    # Threads that end and renew leases.
    LEASE_CALLS = 4

    # Seconds that close waits longer for a lock than its timeout, at most: a handler of a signal can have interrupted
    # the thread that holds it.
    CLOSE_GRACE = 0.2

    attr_reader :mode, :timeout, :connect_timeout, :retries, :ttl, :fallback

    # For the adapters of HTTP libraries, and for Call. epoch is the number of forks before this process.
    attr_reader :api, :sender, :epoch, :hooks # :nodoc:

    # lbd             address of lbd: unix:PATH, http://HOST:PORT or https://HOST:PORT. Default: environment LBD, else
    #                 the first of unix:/run/lbd.sock and unix:/run/lbd/lbd.sock that is a socket, else
    #                 http://localhost:8080
    # mode            :batch; :pick for processes that live for one request; :lease for exact circuit breaking
    # token           token for lbd. Default: environment LBD_TOKEN
    # token_file      file with the token, read again after a 401. Default: environment LBD_TOKEN_FILE. With token or
    #                 token_file, neither variable is used
    # ca              PEM file of the certificates that may sign lbd's. Default: environment LBD_CA, else the system's
    # owner           name of this client in leases. Default: environment LBD_OWNER, else HOSTNAME/PID
    # hosts           what requests to hosts are for: a Hash, or a Proc that returns nil for a host that is not one.
    #                 A value is the name of a cluster, or a Hash: cluster; target, whose routes choose the cluster, and
    #                 headers, those that they match; hash, where the hash key is: header:NAME or cookie:NAME
    # fallback        HOST:PORT for requests while lbd is unreachable and the last batch is too old
    # timeout         default deadline of a request, in seconds; nil for none
    # stale_for       seconds for which the last batch is used while lbd is unreachable
    # max_age         seconds after which a batch is replaced at the latest, 80 % of them at the earliest
    # connect_timeout seconds to connect to an endpoint, at most; then the request goes to another one. While there are
    #                 others, a connect has 3 times what is usual, at least 0.25 s
    # retries         retries of a request, at most
    # max_tokens      size of the budget of retries of a cluster (gRFC A6)
    # ttl             seconds of a lease of a request without a deadline
    # report_interval seconds between two reports of how requests ended
    # on_attempt      is called with each try that has ended, an Attempt, before the next one
    # on_state        is called with :unreachable when lbd does not answer, :stale when the last batch is too old then,
    #                 and :recovered when lbd has answered again
    # logger          a Logger for both, without keys and queries
    #
    # Raises an ArgumentError for a setting that is not valid.
    def initialize(lbd = nil, mode: :batch, token: nil, token_file: nil, ca: nil, owner: nil, hosts: nil, fallback: nil,
                   timeout: 30.0, stale_for: 60.0, max_age: 10.0, connect_timeout: 5.0, retries: 2, max_tokens: 100,
                   ttl: 30.0, report_interval: 5.0, on_attempt: nil, on_state: nil, logger: nil)
      @mode = mode.to_sym
      raise ArgumentError, "mode: #{mode.inspect} is not batch, pick or lease" unless MODES.include?(@mode)

      @owner = owner || setting("LBD_OWNER")
      @hosts = hosts || {}
      @hosts = hosts.to_h { |host, value| [host.downcase, Host.of(host.downcase, value)] } if hosts.is_a?(Hash)
      @known = {}
      @fallback = fallback
      @timeout = timeout
      @connect_timeout = connect_timeout
      @retries = retries
      @ttl = ttl
      @hooks = Hooks.of(on_attempt, on_state, logger)
      @settings = { stale_for: stale_for, max_age: max_age, max_tokens: max_tokens, hooks: @hooks }
      token, token_file = setting("LBD_TOKEN"), setting("LBD_TOKEN_FILE") unless token || token_file
      address, found = lbd, "the setting lbd"
      address, found = setting("LBD"), "environment LBD" unless address
      address, found = Api.default_address, "default; set LBD" unless address
      @api = Api.new(address, token, token_file, ca || setting("LBD_CA"), found: found, hooks: @hooks)
      @upstreams = Upstreams.new(self)
      @sender = Sender.new(@api, @mode == :lease ? LEASE_CALLS : 1, report_interval,
                           -> { @clusters.values }, -> { @reporter })
      @clusters = {}
      @lock = Mutex.new
      @closed = false
      @epoch = 0
      @reporter = draw_reporter
      Processes.add(self)
    end

    # Sends a request, and returns the Net::HTTPResponse with its body. Yields it first, if there is a block: then
    # response.read_body { |part| … } reads the body in parts.
    #
    # url is http://CLUSTER.lbd/PATH, with https for upstreams with TLS. body is a String, or an IO, which is sent once.
    # timeout is the deadline of the request in seconds, the body of the response included; nil for none. open_timeout
    # limits the time to connect, if it is less than connect_timeout. idempotent permits retries of a POST or PATCH; so
    # does a header Idempotency-Key. ask is an Ask.
    #
    # Raises an Error without an endpoint, Net::OpenTimeout, Net::ReadTimeout or Net::WriteTimeout at the deadline, the
    # Net::OpenTimeout ConnectTimeout if only the time to connect has passed, and otherwise what Net::HTTP raises.
    def request(method, url, body = nil, headers = {}, timeout: @timeout, open_timeout: nil, idempotent: nil,
                ask: nil, &block)
      uri = URI(url)
      raise ArgumentError, "url: #{url} is not http://HOST/PATH or https://HOST/PATH" unless uri.is_a?(URI::HTTP)

      bad = headers.each_key.find { |name| name.to_s.match?(/[\r\n:]/) }
      raise ArgumentError, "header: #{bad.inspect} is not a name" if bad

      method = method.to_s.upcase
      request = Net::HTTPGenericRequest.new(method, !body.nil?, method != "HEAD", uri.request_uri, headers)
      body.respond_to?(:read) ? request.body_stream = body : request.body = body
      send_request(request, uri, timeout: timeout, open_timeout: open_timeout, idempotent: idempotent, ask: ask, &block)
    end

    # As request, for a Net::HTTPRequest; uri has the scheme, the host and the port. ssl has params of
    # OpenSSL::SSL::SSLContext#set_params for https.
    def send_request(request, uri, timeout: @timeout, open_timeout: nil, idempotent: nil, ssl: {}, ask: nil, &block)
      @upstreams.send_request(request, uri, Deadline.new(timeout), open_timeout, idempotent, ssl, ask, &block)
    end

    # A Net::HTTP whose requests go through this client. Its read_timeout is the deadline of each request.
    def net_http(host, port = nil, use_ssl: false)
      NetHTTP.through(self, host, port, use_ssl)
    end

    # The cluster that a host names, or the target, as xds:///NAME; nil if requests to the host are not for lbd.
    def cluster_of(host)
      host_of(host)&.name
    end

    # What requests to a host are for: a Host, or nil.
    def host_of(host) # :nodoc:
      @known[host] || (host && find(host))
    end

    # A request to a cluster, for an adapter of an HTTP library. repeatable permits retries. query is that of its Host.
    def call(name, deadline, repeatable, query = "", ask = nil, request = nil, url = nil)
      Processes.check
      raise Errors.unavailable(name, "the client is closed") if @closed
      raise too_long(name[0, NAME_MAX]) if name.bytesize > NAME_MAX || query.bytesize > QUERY_MAX

      Call.new(self, cluster(name), deadline, repeatable, query, ask, request, url)
    end

    # What the client knows of a cluster.
    def cluster(name) # :nodoc:
      @clusters[name] || add(name)
    end

    def owner
      @owner || process
    end

    def closed?
      @closed
    end

    # Sends the last report, ends the leases, and stops the threads, for at most timeout seconds. A handler of a signal
    # can call it.
    def close(timeout = 1.0)
      return if @closed

      closing = Thread.new { shut_down(timeout) } # a handler of a signal may not take locks
      closing.report_on_exception = false
      closing.join(timeout + CLOSE_GRACE)
    end

    # Sends the last report and ends the leases: at the end of the process.
    def flush(timeout) # :nodoc:
      @hooks&.close
      @sender.flush(timeout) unless @closed
    end

    # Forgets in a child what belongs to its parent.
    def after_fork # :nodoc:
      @epoch += 1
      @reporter = draw_reporter
      @lock = Mutex.new
      @api.after_fork
      @upstreams.after_fork
      @clusters.each_value(&:after_fork)
      @sender.after_fork
    end

    private

    def shut_down(timeout)
      Processes.check
      @closed = true
      @hooks&.close
      @clusters.each_value(&:close)
      @sender.close(timeout)
      @api.close
      @upstreams.close
      Processes.remove(self)
    end

    def find(host)
      name = host.downcase
      found = @hosts.is_a?(Hash) ? @hosts[name] : Host.of(name, @hosts.call(name))
      found ||= Host.new(name.delete_suffix(".lbd")) if name.match?(/.\.lbd\z/)
      return found unless found && @hosts.is_a?(Hash) # a Proc may return another one

      @known = {} if @known.size >= CLUSTERS_MAX # names are often input
      @known[host] = found
    end

    def too_long(name)
      reason = "the name of the cluster has more than 512 bytes, or what the request asks more than 24 KiB"
      Errors.unavailable(name, reason).about(cluster: name, code: "invalid_argument")
    end

    def setting(name)
      value = ENV.fetch(name, "")
      value unless value.empty?
    end

    def process
      "#{Socket.gethostname[0, 100]}/#{Process.pid}"
    end

    # The name of this client in its reports. In containers, other processes may have the same name and ID.
    def draw_reporter
      "#{process}/#{SecureRandom.hex(4)}"
    end

    # The clusters that are kept if there are too many.
    def others
      return @clusters.reject { |_, cluster| cluster.forget } if @mode == :batch

      @clusters.except(@clusters.each_value.min_by(&:picked).name)
    end

    def add(name)
      @lock.synchronize do
        @clusters.fetch(name) do
          @clusters = others if @clusters.size >= CLUSTERS_MAX
          raise Errors.unavailable(name, "the client has #{CLUSTERS_MAX} clusters") if @clusters.size >= CLUSTERS_MAX

          @clusters = @clusters.merge(name => Cluster.new(name, @api, **@settings))
          @clusters[name]
        end
      end
    end
  end
end
