import Configuration

/// A configuration that is part of the program, for one kind of upstream. `config/profiles` has the files.
struct BuiltInProfile: Sendable {
  /// The name of its file, without `.yaml`.
  let name: String
  /// The description in the list of profiles.
  let summary: String
  let text: [UInt8]
  /// Whether its address is the address of a public service or the usual address of a program, and not only an example.
  var hasAddress = false

  static let all = [
    BuiltInProfile(name: "plain", summary: "services without requirements", text: PackageResources.plain_yaml),
    BuiltInProfile(
      name: "json-rpc", summary: "JSON-RPC 2.0: Ethereum nodes, Kodi, aria2, language servers",
      text: PackageResources.json_rpc_yaml),
    BuiltInProfile(
      name: "cdp", summary: "Chromium's DevTools: calls and events of a page", text: PackageResources.cdp_yaml),
    BuiltInProfile(
      name: "home-assistant", summary: "Home Assistant: access token, subscriptions",
      text: PackageResources.home_assistant_yaml, hasAddress: true),
    BuiltInProfile(
      name: "obs", summary: "OBS Studio, obs-websocket 5: challenge and response",
      text: PackageResources.obs_yaml, hasAddress: true),
    BuiltInProfile(
      name: "binance", summary: "market data like Binance: subscriptions, a new connection every day",
      text: PackageResources.binance_yaml, hasAddress: true),
    BuiltInProfile(
      name: "huobi", summary: "market data like Huobi: gzip messages, {\"ping\":n}",
      text: PackageResources.huobi_yaml, hasAddress: true),
    BuiltInProfile(
      name: "graphql-transport-ws", summary: "GraphQL subscriptions: Apollo, Hasura, Hot Chocolate, Strawberry",
      text: PackageResources.graphql_transport_ws_yaml),
    BuiltInProfile(name: "phoenix", summary: "Phoenix channels: join, heartbeat", text: PackageResources.phoenix_yaml),
    BuiltInProfile(
      name: "wamp", summary: "WAMP 2 routers like Crossbar.io: calls, subscriptions", text: PackageResources.wamp_yaml),
    BuiltInProfile(
      name: "stomp", summary: "STOMP 1.2: RabbitMQ, ActiveMQ, Artemis, Spring", text: PackageResources.stomp_yaml),
    BuiltInProfile(
      name: "nats", summary: "NATS servers: a subscription, in text", text: PackageResources.nats_yaml),
    BuiltInProfile(
      name: "xmpp", summary: "XMPP servers: Prosody, ejabberd, Openfire", text: PackageResources.xmpp_yaml),
    BuiltInProfile(
      name: "jupyter", summary: "the channels of a Jupyter kernel", text: PackageResources.jupyter_yaml),
    BuiltInProfile(
      name: "ocpp", summary: "OCPP-J: a charge point at its central system", text: PackageResources.ocpp_yaml),
    BuiltInProfile(
      name: "janus", summary: "Janus WebRTC server: session, keep-alive, calls", text: PackageResources.janus_yaml),
    BuiltInProfile(name: "nostr", summary: "Nostr relays", text: PackageResources.nostr_yaml),
    BuiltInProfile(
      name: "slack", summary: "Slack's Socket Mode: events, commands and interactions for an app",
      text: PackageResources.slack_yaml),
    BuiltInProfile(
      name: "discord", summary: "the Discord Gateway: login and heartbeats of a bot",
      text: PackageResources.discord_yaml, hasAddress: true),
    BuiltInProfile(
      name: "twitch", summary: "Twitch EventSub: session, keep-alive, moves",
      text: PackageResources.twitch_yaml, hasAddress: true),
    BuiltInProfile(name: "socketio", summary: "Socket.IO servers", text: PackageResources.socketio_yaml),
  ]

  static func named(_ name: String) throws(UsageError) -> BuiltInProfile {
    if let profile = all.first(where: { $0.name == name }) { return profile }
    let hint = Suggestion.text(for: name, among: all.map(\.name))
    throw UsageError(message: "unknown profile '\(name)'\(hint): 'drawbridge profiles' lists the built-in profiles.")
  }
}
