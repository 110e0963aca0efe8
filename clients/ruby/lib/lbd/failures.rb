# frozen_string_literal: true

require "net/http"
require "openssl"
require "socket"
require "zlib"

module Lbd
  # The kinds of errors that a try of a request can end with.
  module Failures
    # This process or machine is short of something: no endpoint is to blame.
    SHORTAGE = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ENOBUFS, Errno::EADDRNOTAVAIL].freeze

    KINDS = {
      shortage: SHORTAGE,
      # The deadline passed. Errno::ETIMEDOUT is not of these: it is an end of the connection.
      timeout: [Timeout::Error],
      # There was no connection, or it ended before the response.
      connection: [SystemCallError, SocketError, IOError, OpenSSL::SSL::SSLError, Net::HTTPBadResponse],
      # The response is not valid.
      response: [Net::ProtocolError, Net::HTTPHeaderSyntaxError, Zlib::Error]
    }.freeze

    ALL = KINDS.values.flatten.freeze

    # A connection that was idle had ended: the request never reached the other side.
    CLOSED = [IOError, Errno::ECONNRESET, Errno::ECONNABORTED, Errno::EPIPE, OpenSSL::SSL::SSLError].freeze

    # A key of KINDS, or nil for an error that is none of a try. It does not look at the cause of an error: that can be
    # one that the caller is rescuing.
    def self.kind(error)
      KINDS.each { |kind, classes| return kind if classes.any? { |each| each === error } } # rubocop:disable Style/CaseEquality
      nil
    end
  end
end
