# Varnish in front of Drawbridge. Copy it to /etc/varnish/default.vcl, or include it. Varnish has no TLS: use a proxy for it.
#
# In the configuration of the gateway:
#
#   authentication:
#     tokens: /etc/drawbridge/tokens
#   http:
#     hosts: [gateway.example.org]
#     trusted_proxies: [127.0.0.1]
#
# A held poll or a stream occupies two threads of Varnish. By default there are at most 10,000 (thread_pool_max, for each of two pools).
vcl 4.1;

backend drawbridge {
    .host = "127.0.0.1";
    .port = "8080";
    .connect_timeout = 5s;
    # Above delivery.maximum_wait (55 s) and delivery.stream_heartbeat (15 s). The default is 60 s.
    .first_byte_timeout = 75s;
    .between_bytes_timeout = 75s;
}

sub vcl_recv {
    # X-Forwarded-For is appended by Varnish before this.
    set req.http.X-Forwarded-Proto = "http";
    # By default 10 minutes for a whole response, which a stream can exceed (delivery.stream_lifetime, 10 minutes and up to a tenth more).
    set sess.send_timeout = 1h;
    # Varnish stores no response. For a response that it may store, Varnish would remove If-None-Match, and pass on equal polls one at a time.
    return (pass);
}
