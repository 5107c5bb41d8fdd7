// Written by make_image_srgb.py: sRGB's number from 0 to 255 that the bits of a float, not negative and no NaN, are
// nearest to.
uint srgb(uint f) {
  bool b0 = f >= 0x3e5b2d9au;
  bool b1 = f >= mix(0x3d4ec8d2u, 0x3f062827u, b0);
  bool b2 = f >= mix(mix(0x3c668654u, 0x3decf395u, b1), mix(0x3eb2bf00u, 0x3f3ddce5u, b1), b0);
  bool b3 = f >= mix(mix(mix(0x3ba314bdu, 0x3ced78b5u, b2), mix(0x3da23384u, 0x3e2457b6u, b2), b1), mix(mix(0x3e8db641u,
    0x3edce2b2u, b2), mix(0x3f209a3cu, 0x3f5e0486u, b2), b1), b0);
  bool b4 = f >= mix(mix(mix(mix(0x3b153089u, 0x3c10f91bu, b3), mix(0x3ca9fd78u, 0x3d1f382cu, b3), b2),
    mix(mix(0x3d82df90u, 0x3dc58429u, b3), mix(0x3e0c5126u, 0x3e3e9c67u, b3), b2), b1), mix(mix(mix(0x3e7a192cu,
    0x3e9f9a4cu, b3), mix(0x3ec72a7cu, 0x3ef3ed6bu, b3), b2), mix(mix(0x3f13086eu, 0x3f2ee032u, b3), mix(0x3f4d92d8u,
    0x3f6f345au, b3), b2), b1), b0);
  bool b5 = f >= mix(mix(mix(mix(mix(0x3a8b3e5eu, 0x3b65fb9bu, b4), mix(0x3bdd3967u, 0x3c38de1au, b4), b3),
    mix(mix(0x3c8d148fu, 0x3cca16e3u, b4), mix(0x3d0a1cecu, 0x3d3618b7u, b4), b3), b2), mix(mix(mix(0x3d69526au,
    0x3d920c27u, b4), mix(0x3db35a15u, 0x3dd8b5f5u, b4), b3), mix(mix(0x3e012087u, 0x3e180d95u, b4), mix(0x3e313161u,
    0x3e4c9a90u, b4), b3), b2), b1), mix(mix(mix(mix(0x3e6a573eu, 0x3e853a86u, b4), mix(0x3e968095u, 0x3ea9042eu, b4),
    b3), mix(mix(0x3ebccb85u, 0x3ed1dca2u, b4), mix(0x3ee83d63u, 0x3efff37eu, b4), b3), b2), mix(mix(mix(0x3f0c8244u,
    0x3f19bafau, b4), mix(0x3f27a689u, 0x3f36478bu, b4), b3), mix(mix(0x3f45a08fu, 0x3f55b411u, b4), mix(0x3f668485u,
    0x3f781451u, b4), b3), b2), b1), b0);
  bool b6 = f >= mix(mix(mix(mix(mix(mix(0x39eeb40eu, 0x3adacfb8u, b5), mix(0x3b3cf936u, 0x3b89d060u, b5), b4),
    mix(mix(0x3bbedcb7u, 0x3bfe3b46u, b5), mix(0x3c2436c8u, 0x3c4ef648u, b5), b4), b3), mix(mix(mix(0x3c7f950fu,
    0x3c9b247cu, b5), mix(0x3cb9a298u, 0x3cdb5d4bu, b5), b4), mix(mix(0x3d0035fcu, 0x3d14728au, b5), mix(0x3d2a6f22u,
    0x3d423632u, b5), b4), b3), b2), mix(mix(mix(mix(0x3d5bd1d3u, 0x3d774bcau, b5), mix(0x3d8a56cbu, 0x3d9a0035u, b5),
    b4), mix(mix(0x3daaa6a0u, 0x3dbc4e6bu, b5), mix(0x3dcefbd6u, 0x3de2b30au, b5), b4), b3), mix(mix(mix(0x3df77817u,
    0x3e06a77bu, b5), mix(0x3e121dc5u, 0x3e1e20d1u, b5), b4), mix(mix(0x3e2ab27du, 0x3e37d49cu, b5), mix(0x3e4588fbu,
    0x3e53d15du, b5), b4), b3), b2), b1), mix(mix(mix(mix(mix(0x3e62af7eu, 0x3e722511u, b5), mix(0x3e8119e2u,
    0x3e896e9du, b5), b4), mix(mix(0x3e92118bu, 0x3e9b0377u, b5), mix(0x3ea4452bu, 0x3eadd76du, b5), b4), b3),
    mix(mix(mix(0x3eb7bb00u, 0x3ec1f0a7u, b5), mix(0x3ecc791eu, 0x3ed75521u, b5), b4), mix(mix(0x3ee2856au, 0x3eee0ab1u,
    b5), mix(0x3ef9e5a8u, 0x3f030b82u, b5), b4), b3), b2), mix(mix(mix(mix(0x3f094fb9u, 0x3f0fbfd2u, b5),
    mix(0x3f165c22u, 0x3f1d24ffu, b5), b4), mix(mix(0x3f241abcu, 0x3f2b3dadu, b5), mix(0x3f328e24u, 0x3f3a0c73u, b5),
    b4), b3), mix(mix(mix(0x3f41b8ebu, 0x3f4993dbu, b5), mix(0x3f519d92u, 0x3f59d65fu, b5), b4), mix(mix(0x3f623e90u,
    0x3f6ad670u, b5), mix(0x3f739e4du, 0x3f7c9671u, b5), b4), b3), b2), b1), b0);
  bool b7 = f >= mix(mix(mix(mix(mix(mix(mix(0x391f22b4u, 0x3a46eb61u, b6), mix(0x3ab3070bu, 0x3b014c33u, b6), b5),
    mix(mix(0x3b2914dfu, 0x3b50f2d1u, b6), mix(0x3b7c3403u, 0x3b962333u, b6), b5), b4), mix(mix(mix(0x3bb0a731u,
    0x3bcdb76du, b6), mix(0x3bed64afu, 0x3c07df91u, b6), b5), mix(mix(0x3c1a6b32u, 0x3c2e5cc7u, b6), mix(0x3c43bba4u,
    0x3c5a8ee4u, b6), b5), b4), b3), mix(mix(mix(mix(0x3c72dd71u, 0x3c865702u, b6), mix(0x3c940396u, 0x3ca277a6u, b6),
    b5), mix(mix(0x3cb1b653u, 0x3cc1c2a9u, b6), mix(0x3cd29fa4u, 0x3ce45032u, b6), b5), b4), mix(mix(mix(0x3cf6d72eu,
    0x3d051bb4u, b6), mix(0x3d0f39d0u, 0x3d19c745u, b6), b5), mix(mix(0x3d24c567u, 0x3d303584u, b6), mix(0x3d3c18e4u,
    0x3d4870cau, b6), b5), b4), b3), b2), mix(mix(mix(mix(mix(0x3d553e73u, 0x3d628318u, b6), mix(0x3d703feeu,
    0x3d7e7624u, b6), b5), mix(mix(0x3d869372u, 0x3d8e29abu, b6), mix(0x3d95fe4fu, 0x3d9e11ecu, b6), b5), b4),
    mix(mix(mix(0x3da66510u, 0x3daef847u, b6), mix(0x3db7cc1bu, 0x3dc0e114u, b6), b5), mix(mix(0x3dca37b9u, 0x3dd3d08fu,
    b6), mix(0x3dddac19u, 0x3de7cad9u, b6), b5), b4), b3), mix(mix(mix(mix(0x3df22d50u, 0x3dfcd3fcu, b6),
    mix(0x3e03dfaeu, 0x3e0977f6u, b6), b5), mix(mix(0x3e0f3314u, 0x3e151143u, b6), mix(0x3e1b12c2u, 0x3e2137cbu, b6),
    b5), b4), mix(mix(mix(0x3e278099u, 0x3e2ded68u, b6), mix(0x3e347e70u, 0x3e3b33ecu, b6), b5), mix(mix(0x3e420e15u,
    0x3e490d22u, b6), mix(0x3e50314cu, 0x3e577acau, b6), b5), b4), b3), b2), b1), mix(mix(mix(mix(mix(mix(0x3e5ee9d4u,
    0x3e667e9fu, b6), mix(0x3e6e3962u, 0x3e761a52u, b6), b5), mix(mix(0x3e7e21a5u, 0x3e8327c7u, b6), mix(0x3e875222u,
    0x3e8b8ffcu, b6), b5), b4), mix(mix(mix(0x3e8fe170u, 0x3e944696u, b6), mix(0x3e98bf89u, 0x3e9d4c62u, b6), b5),
    mix(mix(0x3ea1ed38u, 0x3ea6a226u, b6), mix(0x3eab6b44u, 0x3eb048aau, b6), b5), b4), b3),
    mix(mix(mix(mix(0x3eb53a71u, 0x3eba40b1u, b6), mix(0x3ebf5b81u, 0x3ec48af9u, b6), b5), mix(mix(0x3ec9cf32u,
    0x3ecf2842u, b6), mix(0x3ed49641u, 0x3eda1946u, b6), b5), b4), mix(mix(mix(0x3edfb168u, 0x3ee55ebdu, b6),
    mix(0x3eeb215du, 0x3ef0f95fu, b6), b5), mix(mix(0x3ef6e6d8u, 0x3efce9deu, b6), mix(0x3f018145u, 0x3f049877u, b6),
    b5), b4), b3), b2), mix(mix(mix(mix(mix(0x3f07ba92u, 0x3f0ae79fu, b6), mix(0x3f0e1faau, 0x3f1162beu, b6), b5),
    mix(mix(0x3f14b0e4u, 0x3f180a29u, b6), mix(0x3f1b6e96u, 0x3f1ede36u, b6), b5), b4), mix(mix(mix(0x3f225913u,
    0x3f25df38u, b6), mix(0x3f2970afu, 0x3f2d0d83u, b6), b5), mix(mix(0x3f30b5bdu, 0x3f346968u, b6), mix(0x3f38288fu,
    0x3f3bf33au, b6), b5), b4), b3), mix(mix(mix(mix(0x3f3fc975u, 0x3f43ab48u, b6), mix(0x3f4798bfu, 0x3f4b91e3u, b6),
    b5), mix(mix(0x3f4f96bdu, 0x3f53a758u, b6), mix(0x3f57c3beu, 0x3f5bebf7u, b6), b5), b4), mix(mix(mix(0x3f60200eu,
    0x3f64600cu, b6), mix(0x3f68abfbu, 0x3f6d03e5u, b6), b5), mix(mix(0x3f7167d2u, 0x3f75d7ccu, b6), mix(0x3f7a53ddu,
    0x3f7edc0eu, b6), b5), b4), b3), b2), b1), b0);
  return uint(b0) << 7 | uint(b1) << 6 | uint(b2) << 5 | uint(b3) << 4 | uint(b4) << 3 | uint(b5) << 2 | uint(b6) << 1 |
    uint(b7) << 0;
}
